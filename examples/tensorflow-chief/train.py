"""Softmax regression on scikit-learn's digits with TensorFlow 2's ParameterServerStrategy.

The chief hands out steps, workers take them, parameter servers hold the weights. Workers and servers wait for
the chief's work until they are stopped.
"""

import argparse
import json
from collections import Counter

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

TRAIN = 1440


def main() -> None:
    """One task's whole life."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=300)
    args = options.parse_args()

    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver(rpc_layer="grpc")
    if cluster.task_type != "chief":
        server = tf.distribute.Server(
            cluster.cluster_spec(), job_name=cluster.task_type, task_index=cluster.task_id, protocol="grpc"
        )
        server.join()

    strategy = tf.distribute.ParameterServerStrategy(cluster)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    images, labels = (images[order] / 16).astype(np.float32), labels[order].astype(np.int64)
    with strategy.scope():
        weights = tf.Variable(tf.zeros((64, 10)))

    def batches() -> tf.data.Dataset:
        """A worker's own: batches, each beside a number that this worker drew once."""
        pairs = tf.data.Dataset.from_tensor_slices((images[:TRAIN], labels[:TRAIN]))
        own = tf.data.Dataset.random().take(1).cache().repeat()
        return tf.data.Dataset.zip((pairs.shuffle(TRAIN).repeat().batch(120), own))

    @tf.function
    def step(iterator):
        (pixels, digits), worker = next(iterator)
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(digits, pixels @ weights)
            loss = tf.reduce_mean(losses)
        weights.assign_sub(0.5 * tape.gradient(loss, weights))
        return loss, worker

    iterator = iter(coordinator.create_per_worker_dataset(batches))
    done = [coordinator.schedule(step, args=(iterator,)) for _ in range(args.steps)]
    coordinator.join()

    found = [tuple(map(float, each.fetch())) for each in done]
    hits = np.mean((images[TRAIN:] @ weights.numpy()).argmax(axis=1) == labels[TRAIN:])
    steps = sorted(Counter(worker for _, worker in found).values())
    result = {"accuracy": round(float(hits), 4), "losses": [found[0][0], found[-1][0]], "steps": steps}
    print(json.dumps(result | {"weights_on": weights.device}))


if __name__ == "__main__":
    main()

"""Softmax regression on scikit-learn's digits with TensorFlow's MultiWorkerMirroredStrategy and TF_CONFIG."""

import argparse
import json
import os

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

TRAIN = 1440


def main() -> None:
    """One worker's whole life."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=100)
    args = options.parse_args()

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    workers = strategy.num_replicas_in_sync
    task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    images, labels = (images[order] / 16).astype(np.float32), labels[order].astype(np.int64)
    mine, mine_labels = tf.constant(images[:TRAIN][task::workers]), tf.constant(labels[:TRAIN][task::workers])

    with strategy.scope():
        weights = tf.Variable(tf.zeros((64, 10)))
        speed = tf.Variable(tf.zeros((64, 10)))

    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            scores = mine @ weights
            loss = tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(mine_labels, scores)) / TRAIN
        gradient = tape.gradient(loss, weights)
        together = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, gradient)
        speed.assign(0.9 * speed + together)
        weights.assign_sub(0.2 * speed)
        return loss

    @tf.function
    def train() -> tf.Tensor:
        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(step), axis=None)

    losses = [float(train()) for _ in range(args.steps)]

    # One row a worker, its own filled in: the sum over all workers names every node.
    @tf.function
    def meet() -> tf.Tensor:
        def seen() -> tf.Tensor:
            return tf.one_hot(task, workers, dtype=tf.int64) * len(mine)

        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(seen), axis=None)

    counts = [int(count) for count in meet()]
    hits = np.mean((images[TRAIN:] @ weights.numpy()).argmax(axis=1) == labels[TRAIN:])
    if task == 0:
        print(
            json.dumps(
                {"accuracy": round(float(hits), 4), "losses": losses[:: args.steps - 1], "images": counts}
            )
        )


if __name__ == "__main__":
    main()

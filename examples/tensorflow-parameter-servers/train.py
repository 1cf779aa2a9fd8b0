"""Softmax regression on scikit-learn's digits: servers hold the weights, workers train at their own pace.

Written as TensorFlow 1 had it and 2 still runs it: one session a worker; TF_CONFIG says who is who.
"""

import argparse
import json
import os
import time

import numpy as np
import tensorflow.compat.v1 as tf
from sklearn.datasets import load_digits

TRAIN = 1440


def main() -> None:
    """One task's whole life; a parameter server's lasts until it is stopped."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=150)
    args = options.parse_args()

    config = json.loads(os.environ["TF_CONFIG"])
    cluster, task = tf.train.ClusterSpec(config["cluster"]), config["task"]
    server = tf.train.Server(cluster, job_name=task["type"], task_index=task["index"])
    if task["type"] == "ps":
        server.join()

    tf.disable_eager_execution()
    index, workers = task["index"], cluster.num_tasks("worker")
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    images, labels = (images[order] / 16).astype(np.float32), labels[order].astype(np.int64)

    with tf.device(
        tf.train.replica_device_setter(worker_device=f"/job:worker/task:{index}", cluster=cluster)
    ):
        weights = tf.get_variable("weights", (64, 10), initializer=tf.zeros_initializer())
        trained = tf.get_variable("trained", (workers,), tf.int64, initializer=tf.zeros_initializer())
        scores = tf.constant(images[:TRAIN][index::workers]) @ weights
        wanted = tf.constant(labels[:TRAIN][index::workers])
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=wanted, logits=scores))
        count = tf.assign_add(trained, tf.one_hot(index, workers, dtype=tf.int64))
        train = tf.group(tf.train.MomentumOptimizer(0.2, 0.9).minimize(loss), count)

    with tf.train.MonitoredTrainingSession(master=server.target, is_chief=index == 0) as session:
        losses = [float(session.run([loss, train])[0]) for _ in range(args.steps)]
        print(f"worker {index} of {workers}: loss from {losses[0]:.4f} to {losses[-1]:.4f}")
        while index == 0 and min(steps := session.run(trained)) < args.steps:
            time.sleep(0.5)
        if index == 0:
            hits = np.mean((images[TRAIN:] @ session.run(weights)).argmax(axis=1) == labels[TRAIN:])
            result = {"accuracy": round(float(hits), 4), "steps": [int(number) for number in steps]}
            print(json.dumps(result | {"weights_on": weights.device}))


if __name__ == "__main__":
    main()

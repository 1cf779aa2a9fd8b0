"""How many images a second ResNet-50 trains on with TensorFlow's MultiWorkerMirroredStrategy."""

import json
import os
from pathlib import Path

import tensorflow as tf
from benchmark import batch_of_rank, measure, read_options

CLASSES = 1000


def batches(args, size, rank, workers):
    """Yield images and labels for ever, ``size`` of them at once: random ones, or those of a folder."""
    shape = (args.image_size, args.image_size)
    if not args.data:
        images = tf.random.stateless_uniform((size, *shape, 3), (rank, 0))
        labels = tf.random.stateless_uniform((size,), (rank, 1), maxval=CLASSES, dtype=tf.int64)
        while True:
            yield images, labels
    found = tf.keras.utils.image_dataset_from_directory(
        Path(args.data) / "train", batch_size=None, image_size=shape, shuffle=False, verbose=rank == 0
    )
    yield from found.shard(workers, rank).repeat().shuffle(1000).batch(size).prefetch(tf.data.AUTOTUNE)


def main():
    """One worker's whole life."""
    args = read_options(__doc__)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    ranks = strategy.num_replicas_in_sync
    config = json.loads(os.environ["TF_CONFIG"])
    rank, workers = config["task"]["index"], len(config["cluster"]["worker"])
    local = ranks // workers  # a worker trains on each of its GPUs
    size = batch_of_rank(args, ranks)
    with strategy.scope():
        model = tf.keras.applications.ResNet50(
            weights=None, input_shape=(args.image_size, args.image_size, 3), classes=CLASSES
        )
        optimizer = tf.keras.optimizers.SGD(0.01, momentum=0.9)

    def train(images, labels):
        first = size * (tf.distribute.get_replica_context().replica_id_in_sync_group % local)
        with tf.GradientTape() as tape:
            chances = model(images[first : first + size], training=True)
            loss = tf.reduce_mean(
                tf.keras.losses.sparse_categorical_crossentropy(labels[first : first + size], chances)
            )
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))

    @tf.function(reduce_retracing=True)
    def train_everywhere(images, labels):
        strategy.run(train, args=(images, labels))

    data = batches(args, size * local, rank, workers)

    def step():
        train_everywhere(*next(data))
        optimizer.iterations.numpy()  # waits for the step

    speeds = measure(step, args, size * local, rank, "worker")

    @tf.function
    def sums():
        """Return each worker's sum of its weights."""
        own = tf.add_n([tf.reduce_sum(tf.cast(one, tf.float64)) for one in model.trainable_variables])
        return tf.distribute.get_replica_context().all_gather(own[None], 0)

    gathered = strategy.run(sums)
    values = gathered.numpy() if hasattr(gathered, "numpy") else gathered.values[0].numpy()
    if rank == 0:
        total = round(sum(speeds) / len(speeds) * workers, 1)
        print(json.dumps({"img_per_s": total, "equal_weights": len({*values}) == 1, "workers": workers}))


if __name__ == "__main__":
    main()

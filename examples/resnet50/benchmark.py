"""What the three benchmarks share: their options, and the timing that is printed.

Rank 0 prints its own speed after each of some batches, as Horovod's synthetic benchmark does:
``Iter #3: 331.2 img/sec per GPU``.
"""

import argparse
import timeit


def read_options(description):
    """Return the command line's options; those of the job files are for GPUs."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--batch-size", type=int, default=32, help="images of one rank in one step")
    options.add_argument("--global-batch-size", type=int, default=0, help="of all ranks together, instead")
    options.add_argument("--image-size", type=int, default=224, help="height and width in pixels")
    options.add_argument("--warm-up", type=int, default=10, help="steps before the first that is timed")
    options.add_argument("--iters", type=int, default=10, help="number of figures")
    options.add_argument("--batches", type=int, default=10, help="steps that a figure is the mean of")
    options.add_argument("--data", default="", help="folder with train/CLASS/IMAGE, as ImageNet has it")
    options.add_argument("--workers", type=int, default=4, help="processes of a rank that read images")
    return options.parse_args()


def batch_of_rank(args, ranks):
    """Return the images of one rank in one step: the same for any number of ranks, or its share."""
    if not args.global_batch_size:
        return args.batch_size
    if args.global_batch_size % ranks:
        raise SystemExit(f"--global-batch-size {args.global_batch_size} cannot be shared by {ranks} ranks")
    return args.global_batch_size // ranks


def measure(step, args, images, rank, device):
    """Run the steps, which train on ``images`` each; return images per second of each figure."""
    for _ in range(args.warm_up):
        step()
    speeds = []
    for number in range(args.iters):
        speeds.append(images * args.batches / timeit.timeit(step, number=args.batches))
        if rank == 0:
            print(f"Iter #{number}: {speeds[-1]:.1f} img/sec per {device}", flush=True)
    return speeds

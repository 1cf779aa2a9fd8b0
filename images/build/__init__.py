"""A Pulumi program of its own: ``pulumi -C images/build up`` makes an image that clusters then boot."""

"""ResNet-50 for PyTorch 1.13 and later, without torchvision.

He, Zhang, Ren and Sun, "Deep residual learning for image recognition" (2015), with the stride in the 3x3
convolution of a block, as today's ResNet-50 has it ("v1.5").
"""

from torch import nn

BLOCKS = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
"""Of each stage: width, number of blocks, stride of the first."""


def resnet50(classes=1000):
    """Return the network: 25.6 million weights for 1000 classes."""
    layers = [*_normed(3, 64, kernel=7, stride=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1)]
    channels = 64
    for width, blocks, stride in BLOCKS:
        for number in range(blocks):
            layers.append(Bottleneck(channels, width, stride if number == 0 else 1))
            channels = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


class Bottleneck(nn.Module):
    """Three convolutions beside a shortcut."""

    def __init__(self, channels, width, stride):
        super().__init__()
        self.main = nn.Sequential(
            *(*_normed(channels, width, kernel=1), nn.ReLU(inplace=True)),
            *(*_normed(width, width, kernel=3, stride=stride), nn.ReLU(inplace=True)),
            *_normed(width, 4 * width, kernel=1),
        )
        is_same = stride == 1 and channels == 4 * width
        self.shortcut = nn.Identity() if is_same else nn.Sequential(*_normed(channels, 4 * width, 1, stride))
        self.last = nn.ReLU(inplace=True)

    def forward(self, images):
        """Return the block's output."""
        return self.last(self.main(images) + self.shortcut(images))


def _normed(channels, width, kernel, stride=1):
    convolution = nn.Conv2d(channels, width, kernel, stride, padding=kernel // 2, bias=False)
    return convolution, nn.BatchNorm2d(width)

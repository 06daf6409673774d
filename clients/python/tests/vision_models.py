"""Networks for images in the manner of torchvision, small, with random weights."""

import torch
import torch.nn.functional as F
from torch import nn


def conv_norm(before, after, kernel=3, stride=1, groups=1, act=nn.ReLU):
    layers = [nn.Conv2d(before, after, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(after)]
    return nn.Sequential(*layers, *([act()] if act else []))


class AlexNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 5, 2, 2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.ReLU(inplace=True),
        )
        self.avgpool = nn.AdaptiveAvgPool2d((2, 2))
        self.classifier = nn.Sequential(nn.Dropout(), nn.Linear(64, 32), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(32, 10))

    def forward(self, x):
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


class VGG(nn.Module):
    """With batch normalisation after convolutions that have a bias."""

    def __init__(self):
        super().__init__()
        layers, before = [], 3
        for width in (8, "pool", 16, 16, "pool", 24):
            if width == "pool":
                layers.append(nn.MaxPool2d(2, 2))
                continue
            layers += [nn.Conv2d(before, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(True)]
            before = width
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Linear(24 * 64, 32), nn.ReLU(True), nn.Dropout(), nn.Linear(32, 10))

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


class BasicBlock(nn.Module):
    def __init__(self, before, after, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.downsample = conv_norm(before, after, 1, stride, act=None) if before != after else None

    def forward(self, x):
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class Bottleneck(nn.Module):
    def __init__(self, before, after, groups=1):
        super().__init__()
        self.branch = nn.Sequential(
            conv_norm(before, after // 2, 1),
            conv_norm(after // 2, after // 2, 3, groups=groups),
            conv_norm(after // 2, after, 1, act=None),
        )
        self.shortcut = conv_norm(before, after, 1, act=None) if before != after else nn.Identity()

    def forward(self, x):
        return F.relu(self.branch(x) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, *blocks):
        super().__init__()
        self.stem = conv_norm(3, 8, 7, 2)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layers = nn.Sequential(*blocks)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(16, 10)

    def forward(self, x):
        return self.fc(torch.flatten(self.avgpool(self.layers(self.maxpool(self.stem(x)))), 1))


class InvertedResidual(nn.Module):
    def __init__(self, before, after, stride, expand, squeeze=False, act=nn.ReLU6):
        super().__init__()
        hidden = before * expand
        self.use_res_connect = stride == 1 and before == after
        layers = [conv_norm(before, hidden, 1, act=act)] if expand != 1 else []
        layers.append(conv_norm(hidden, hidden, 3, stride, groups=hidden, act=act))
        layers += [SqueezeExcitation(hidden, 4)] if squeeze else []
        self.conv = nn.Sequential(*layers, nn.Conv2d(hidden, after, 1, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


class SqueezeExcitation(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1, self.fc2 = nn.Conv2d(width, hidden, 1), nn.Conv2d(hidden, width, 1)

    def forward(self, x):
        return x * self.fc2(F.silu(self.fc1(self.avgpool(x)))).sigmoid()


class MobileNet(nn.Module):
    def __init__(self, squeeze=False, act=nn.ReLU6):
        super().__init__()
        self.features = nn.Sequential(
            conv_norm(3, 8, 3, 2, act=act),
            InvertedResidual(8, 8, 1, 1, squeeze, act),
            InvertedResidual(8, 12, 2, 4, squeeze, act),
            InvertedResidual(12, 12, 1, 4, squeeze, act),
            conv_norm(12, 32, 1, act=act),
        )
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(32, 10))

    def forward(self, x):
        x = F.adaptive_avg_pool2d(self.features(x), (1, 1))
        return self.classifier(torch.flatten(x, 1))


class DenseLayer(nn.Module):
    def __init__(self, before, growth):
        super().__init__()
        self.norm1, self.relu1 = nn.BatchNorm2d(before), nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(before, 2 * growth, 1, bias=False)
        self.norm2, self.relu2 = nn.BatchNorm2d(2 * growth), nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(2 * growth, growth, 3, padding=1, bias=False)

    def forward(self, inputs):
        out = self.conv1(self.relu1(self.norm1(torch.cat(inputs, 1))))
        return self.conv2(self.relu2(self.norm2(out)))


class DenseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.layers = nn.ModuleList(DenseLayer(8 + 4 * index, 4) for index in range(3))
        self.transition = nn.Sequential(
            nn.BatchNorm2d(20), nn.ReLU(inplace=True), nn.Conv2d(20, 10, 1, bias=False), nn.AvgPool2d(2, 2)
        )
        self.norm = nn.BatchNorm2d(10)
        self.classifier = nn.Linear(10, 10)

    def forward(self, x):
        features = [self.stem(x)]
        for layer in self.layers:
            features.append(layer(features))
        x = F.relu(self.norm(self.transition(torch.cat(features, 1))))
        return self.classifier(F.adaptive_avg_pool2d(x, (1, 1)).flatten(1))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.down2, self.bottom = conv_norm(3, 8), conv_norm(8, 16), conv_norm(16, 32)
        self.pool = nn.MaxPool2d(2)
        self.up2, self.up1 = nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)
        self.join2, self.join1 = conv_norm(32, 16), conv_norm(16, 8)
        self.head = nn.Conv2d(8, 2, 1)

    def forward(self, x):
        first = self.down1(x)
        second = self.down2(self.pool(first))
        x = self.up2(self.bottom(self.pool(second)))
        x = self.up1(self.join2(torch.cat([x, second], dim=1)))
        return self.head(self.join1(torch.cat([x, first], dim=1)))


class ConvNeXtBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.expand, self.act, self.project = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width, 1, 1), 0.5))

    def forward(self, x):
        out = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + self.scale * self.project(self.act(self.expand(out))).permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 4, 4)
        self.blocks = nn.Sequential(ConvNeXtBlock(16), ConvNeXtBlock(16))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 10)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.stem(x)).mean([-2, -1])))


class Attention(nn.Module):
    """Three Linears that read one value, and a division."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.width = heads, width // heads
        self.query, self.key, self.value = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def split(self, x):
        return x.reshape(x.shape[0], -1, self.heads, self.width).transpose(1, 2)

    def forward(self, x):
        query, key, value = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        weights = torch.softmax(query @ key.transpose(-2, -1) / self.width**0.5, dim=-1)
        return self.out((weights @ value).transpose(1, 2).flatten(2))


class EncoderBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.LayerNorm(width), Attention(width, 4), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 8, 8)
        self.token = nn.Parameter(torch.zeros(1, 1, 32))
        self.position = nn.Parameter(torch.randn(1, 17, 32) * 0.02)
        self.blocks = nn.Sequential(EncoderBlock(32), EncoderBlock(32))
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.position
        return self.head(self.norm(self.blocks(x))[:, 0])


class MixerBlock(nn.Module):
    def __init__(self, tokens, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
        self.channels = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 8, 8)
        self.blocks = nn.Sequential(MixerBlock(16, 16), MixerBlock(16, 16))
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        return self.head(self.blocks(self.patches(x).flatten(2).transpose(1, 2)).mean(1))


class Fire(nn.Module):
    def __init__(self, before, squeeze, expand):
        super().__init__()
        self.squeeze, self.expand1, self.expand3 = (
            nn.Conv2d(before, squeeze, 1),
            nn.Conv2d(squeeze, expand, 1),
            nn.Conv2d(squeeze, expand, 3, padding=1),
        )

    def forward(self, x):
        x = F.relu(self.squeeze(x))
        return torch.cat([F.relu(self.expand1(x)), F.relu(self.expand3(x))], 1)


class SqueezeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True), Fire(8, 4, 8), Fire(16, 4, 8)
        )
        self.classifier = nn.Sequential(nn.Dropout(), nn.Conv2d(16, 10, 1), nn.ReLU(), nn.AdaptiveAvgPool2d((1, 1)))

    def forward(self, x):
        return torch.flatten(self.classifier(self.features(x)), 1)


class ShuffleUnit(nn.Module):
    def __init__(self, width):
        super().__init__()
        half = width // 2
        self.branch = nn.Sequential(
            conv_norm(half, half, 1), conv_norm(half, half, 3, groups=half, act=None), conv_norm(half, half, 1)
        )

    def forward(self, x):
        left, right = x.chunk(2, dim=1)
        out = torch.cat((left, self.branch(right)), dim=1)
        batch, channels, height, width = out.size()
        return (
            out.view(batch, 2, channels // 2, height, width).transpose(1, 2).contiguous().view(batch, channels, height, width)
        )


class ShuffleNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.units = conv_norm(3, 8, 3, 2), nn.Sequential(ShuffleUnit(8), ShuffleUnit(8))
        self.fc = nn.Linear(8, 10)

    def forward(self, x):
        return self.fc(self.units(self.stem(x)).mean([2, 3]))


class Inception(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = conv_norm(3, 8, 3, 2)
        self.one, self.three = conv_norm(8, 4, 1), nn.Sequential(conv_norm(8, 4, 1), conv_norm(4, 8, 3))
        self.pooled = nn.Sequential(nn.MaxPool2d(3, 1, 1), conv_norm(8, 4, 1))
        self.dropout, self.fc = nn.Dropout(0.2), nn.Linear(16, 10)

    def forward(self, x):
        x = self.stem(x)
        x = torch.cat([self.one(x), self.three(x), self.pooled(x)], 1)
        return self.fc(self.dropout(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1)))


class Autoencoder(nn.Module):
    """Perceptrons with batch normalisation; the decoder's last weight is the encoder's first, transposed."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(48, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8), nn.BatchNorm1d(8))
        self.decoder = nn.Sequential(nn.ReLU(), nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU())

    def forward(self, x):
        x = F.avg_pool2d(x, 8).flatten(1)
        return F.linear(self.decoder(self.encoder(x)), self.encoder[0].weight.t())


class Generator(nn.Module):
    """Transposed convolutions with batch normalisation, in one, two and three dimensions, and in groups."""

    def __init__(self):
        super().__init__()
        self.line = nn.Sequential(nn.ConvTranspose1d(3, 6, 4, 2, 1), nn.BatchNorm1d(6), nn.ReLU())
        self.plane = nn.Sequential(nn.ConvTranspose2d(6, 8, 4, 2, 1, groups=2, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.space = nn.Sequential(nn.ConvTranspose3d(8, 4, (1, 2, 2), (1, 2, 2), groups=2), nn.BatchNorm3d(4), nn.Tanh())

    def forward(self, x):
        x = self.line(x[:, :, 0, :8])
        x = self.plane(x.unsqueeze(2).expand(-1, -1, 4, -1))
        return self.space(x.unsqueeze(2))


class PreActivation(nn.Module):
    """Batch normalisation before convolutions that pad nothing, and before a Linear; and of sequences."""

    def __init__(self):
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(3), nn.Conv2d(3, 8, 4, 4)
        self.norm2, self.conv2 = nn.BatchNorm1d(8), nn.Conv1d(8, 8, 1, groups=4)
        self.norm3, self.conv3 = nn.BatchNorm3d(8), nn.Conv3d(8, 4, (1, 2, 2))
        self.norm4, self.fc = nn.BatchNorm1d(4), nn.Linear(4, 10)

    def forward(self, x):
        x = self.conv1(self.norm1(x))
        x = self.conv2(self.norm2(x.flatten(2))).unflatten(2, (1, 8, 8))
        x = self.conv3(self.norm3(x)).amax(dim=(2, 3, 4))
        return self.fc(self.norm4(x))


class LowRank(nn.Module):
    """A Linear with an adapter, as it is and added to its weight."""

    def __init__(self, width, rank=4):
        super().__init__()
        self.base = nn.Linear(width, width)
        self.down, self.up = nn.Linear(width, rank, bias=False), nn.Linear(rank, width, bias=False)
        self.scale = 0.5

    def forward(self, x, is_merged):
        if is_merged:
            return F.linear(x, self.base.weight + self.scale * (self.up.weight @ self.down.weight), self.base.bias)
        return self.base(x) + self.scale * self.up(self.down(x))


class Padded(nn.Module):
    """Zeros around what convolutions and pools read, in the ways that there are; one pads more on one side, as TensorFlow
    does."""

    def __init__(self):
        super().__init__()
        self.pad, self.stem = nn.ZeroPad2d(1), nn.Conv2d(3, 8, 3, 2)
        self.deep = nn.Conv2d(8, 8, 3, padding=1, groups=8, dilation=2)
        self.same = nn.Conv2d(8, 8, 3, 2)
        self.around, self.pool, self.fc = nn.ConstantPad2d((1, 1, 0, 0), 0.0), nn.AvgPool2d((2, 3)), nn.Linear(8, 10)

    def forward(self, x):
        x = F.relu(self.stem(self.pad(x)))
        x = F.relu(self.deep(F.pad(x, (1, 1, 1, 1))))
        x = F.relu(self.same(F.pad(x, (0, 1, 0, 1))))
        return self.fc(self.pool(self.around(x)).mean((2, 3)))


class Adapted(nn.Module):
    """Attention with adapters, scores divided by a root, and a gated perceptron."""

    def __init__(self, width=32):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.query, self.key, self.value = LowRank(width), LowRank(width), nn.Linear(width, width)
        self.norm = nn.RMSNorm(width)
        self.gate, self.up, self.down = (nn.Linear(*sizes, bias=False) for sizes in ((width, 64), (width, 64), (64, width)))

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        scores = (self.query(x, True) / 32**0.5) @ self.key(x, False).transpose(1, 2)
        y = self.norm(x + scores.softmax(-1) @ self.value(x))
        return self.down(F.silu(self.gate(y)) * self.up(y))


MODELS = {
    "alexnet": AlexNet,
    "vgg": VGG,
    "resnet": lambda: ResNet(BasicBlock(8, 8), BasicBlock(8, 16, 2)),
    "wide-resnet": lambda: ResNet(Bottleneck(8, 16), Bottleneck(16, 16)),
    "regnet": lambda: ResNet(Bottleneck(8, 16, groups=2), Bottleneck(16, 16, groups=2)),
    "mobilenet": MobileNet,
    "efficientnet": lambda: MobileNet(squeeze=True, act=nn.SiLU),
    "densenet": DenseNet,
    "unet": UNet,
    "convnext": ConvNeXt,
    "vit": ViT,
    "mixer": Mixer,
    "squeezenet": SqueezeNet,
    "shufflenet": ShuffleNet,
    "inception": Inception,
    "autoencoder": Autoencoder,
    "generator": Generator,
    "pre-activation": PreActivation,
    "adapted": Adapted,
    "padded": Padded,
}


def make(name):
    """The model and an example of its arguments."""
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    for child in model.modules():
        if isinstance(child, nn.modules.batchnorm._BatchNorm):
            child.running_mean.normal_(0, 0.1)
            child.running_var.uniform_(0.5, 2)
            nn.init.uniform_(child.weight, 0.5, 2)
            nn.init.normal_(child.bias, 0, 0.1)
    return model, {"x": torch.randn(2, 3, 32, 32)}

"""The named sizes of the paper, of its successors, and of MLP-Mixer."""

from keras_vit.config import MixerConfig, ViTConfig

# Name: num_layers, num_heads, hidden_dim, mlp_dim. Paper Table 1 for B, L and H; Ti and S as in
# the official repository's vit_jax/configs/models.py; M and those below as in big_vision's
# models/vit.py (So400m: arXiv 2305.13035; g and G: arXiv 2106.04560).
SIZES = {
    "Ti": (12, 3, 192, 768),
    "S": (12, 6, 384, 1536),
    "M": (12, 8, 512, 2048),
    "B": (12, 12, 768, 3072),
    "L": (24, 16, 1024, 4096),
    "So400m": (27, 16, 1152, 4304),
    "H": (32, 16, 1280, 5120),
    "g": (40, 16, 1408, 6144),
    "g-opt": (40, 16, 1536, 6144),
    "G": (48, 16, 1664, 8192),
    "G-opt": (48, 16, 1536, 8192),
}
# The official configurations of these train with dropout.
DROPOUT = ("L/16", "H/14", "R50+B/16", "R50+L/32")
# Stem, size and patch on the stem's feature map. A hybrid's name gives the stride of the whole,
# but for R+Ti/16, whose root has stride 4 and whose patches have 8: it is of stride 32.
STEMS = {
    "R+Ti/16": ((), "Ti", 8),
    "R26+S/32": ((2, 2, 2, 2), "S", 1),
    "R26+B/32": ((2, 2, 2, 2), "B", 1),
    "R50+B/16": ((3, 4, 9), "B", 1),
    "R50+L/32": ((3, 4, 6, 3), "L", 1),
}


def _variant(name: str) -> ViTConfig:
    stem_layers, size, patch_size = STEMS.get(name) or (None, *name.split("/"))
    num_layers, num_heads, hidden_dim, mlp_dim = SIZES[size]
    return ViTConfig(
        num_layers=num_layers,
        num_heads=num_heads,
        hidden_dim=hidden_dim,
        mlp_dim=mlp_dim,
        patch_size=int(patch_size),
        stem_layers=stem_layers,
        dropout_rate=0.1 if name in DROPOUT else 0.0,
    )


VARIANTS = {
    name: _variant(name)
    for name in (
        *("Ti/16", "S/16", "S/32", "M/16", "M/32", "B/8", "B/16", "B/32", "L/16", "L/32"),
        *("So400m/14", "H/14", "g/14", "g-opt/14", "G/14", "G-opt/14"),
        *STEMS,
    )
}

# Name: num_layers, hidden_dim, tokens_mlp_dim, channels_mlp_dim. Mixer paper (arXiv 2105.01601),
# Table 1; the official repository has configurations for B/16, B/32 and L/16.
MIXER_SIZES = {
    "S": (8, 512, 256, 2048),
    "B": (12, 768, 384, 3072),
    "L": (24, 1024, 512, 4096),
}


def _mixer_variant(name: str) -> MixerConfig:
    size, patch_size = name.split("/")
    num_layers, hidden_dim, tokens_mlp_dim, channels_mlp_dim = MIXER_SIZES[size]
    return MixerConfig(
        num_layers=num_layers,
        hidden_dim=hidden_dim,
        tokens_mlp_dim=tokens_mlp_dim,
        channels_mlp_dim=channels_mlp_dim,
        patch_size=int(patch_size),
    )


MIXER_VARIANTS = {
    name: _mixer_variant(name) for name in ("S/8", "S/16", "S/32", "B/16", "B/32", "L/16", "L/32")
}

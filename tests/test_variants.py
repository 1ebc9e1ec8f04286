from keras_vit.variants import MIXER_SIZES, MIXER_VARIANTS, SIZES, VARIANTS


def test_names_say_size_and_stride():
    """A hybrid's number is the stride of the whole; R+Ti/16 is of stride 32, despite its name."""
    for name, config in (VARIANTS | MIXER_VARIANTS).items():
        stride = 32 if name == "R+Ti/16" else int(name.split("/")[1])
        assert config.patch_size[0] * config.stem_stride == stride, name


def test_every_size_has_a_variant():
    assert {name.split("/")[0].split("+")[-1] for name in VARIANTS} == set(SIZES)
    assert {name.split("/")[0] for name in MIXER_VARIANTS} == set(MIXER_SIZES)


def test_those_that_train_with_dropout():
    """As in the official configurations."""
    with_dropout = {name for name, config in VARIANTS.items() if config.dropout_rate}
    assert with_dropout == {"L/16", "H/14", "R50+B/16", "R50+L/32"}

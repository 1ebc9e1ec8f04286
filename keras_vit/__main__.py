"""`python -m keras_vit`: the same as the command `keras-vit`."""

from keras_vit.cli import main

if __name__ == "__main__":
    main()

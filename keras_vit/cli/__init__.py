"""The command `keras-vit`: one verb, one file, one row of `COMMANDS`.

Exit codes: 0 fine, 1 failed, 2 wrong usage, 130 after Ctrl-C. Results go to stdout, everything
else to stderr.
"""

import io
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import keras
import tensorflow as tf
import typer

from keras_vit import __version__
from keras_vit.cli.cache import cache
from keras_vit.cli.console import guarded, say, show_notices
from keras_vit.cli.convert import convert
from keras_vit.cli.download import download
from keras_vit.cli.evaluate import evaluate
from keras_vit.cli.export import export
from keras_vit.cli.finetune import finetune
from keras_vit.cli.list_models import list_models
from keras_vit.cli.predict import predict
from keras_vit.cli.show import show
from keras_vit.cli.verify import verify

COMMANDS = {
    "list": list_models,
    "show": show,
    "download": download,
    "verify": verify,
    "cache": cache,
    "finetune": finetune,
    "evaluate": evaluate,
    "predict": predict,
    "export": export,
    "convert": convert,
}

app = typer.Typer(
    add_completion=False,  # each press of Tab would wait for TensorFlow
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
for _name, _verb in COMMANDS.items():
    app.command(_name)(guarded(_verb))


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and leave the process.

    Args:
        arguments: What follows the command's name; None for what this process was given.

    Raises:
        SystemExit: Always, with the exit code.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    show_notices()
    if sys.stdout is None:  # closed: nobody wants the results
        sys.stdout = io.StringIO()
    # `obj` is for verbs that print how to go on.
    app(arguments, prog_name="keras-vit", obj=arguments)


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"keras-vit {__version__} (Keras {keras.__version__}, TensorFlow {tf.__version__})")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Versions in use."),
    ] = False,
):
    """Vision Transformers for Keras: official weights, fine-tuned on your pictures, exported.

    \b
      keras-vit list                             what weights there are
      keras-vit show google/vit-base-patch16-224 one of them
      keras-vit finetune                         a demonstration, offline
      keras-vit finetune flowers/ -d runs/1      train, one subfolder a class
      keras-vit evaluate runs/1 flowers/         how often it is right
      keras-vit predict runs/1 holiday/*.jpg     name what pictures show
      keras-vit export runs/1 serving/flowers/1  a SavedModel of JPEG bytes
      keras-vit convert runs/1 flowers --to hf   what transformers or timm load

    KERAS_VIT_TRACEBACK=1 in the environment shows where an error came from.
    """

"""Files into a repository of the Hugging Face Hub, through its own client."""

from pathlib import Path

import httpx2
from huggingface_hub import HfApi, constants, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from keras_vit.zoo.hub import causes, checked_token

SIGN_IN = "pass `token=` or run `hf auth login`"


class UploadError(OSError):
    """Files could not be sent. The message says why, and what to do."""


def check_repository(repository: str, token: str | bool | None = None) -> None:
    """Refuse what can be known to fail before a connection is made.

    Args:
        repository: `namespace/name`.
        token: As in `upload_folder`.

    Raises:
        ValueError: If `repository` or `token` cannot be one.
        UploadError: If there is no token, or the network is switched off.
    """
    if repository.count("/") != 1:
        raise ValueError(
            "`repo_id` must be 'namespace/name', the namespace being your name on the Hub or an "
            f"organisation of yours. Received: repo_id={repository!r}."
        )
    token = checked_token(token)
    if constants.is_offline_mode():
        raise UploadError("The network is switched off. Unset HF_HUB_OFFLINE to upload.")
    if token is False or not (token if isinstance(token, str) else get_token()):
        raise UploadError(
            f"Uploading to {repository!r} needs a token that may write. There is none: make one "
            f"at {constants.ENDPOINT}/settings/tokens, then {SIGN_IN}."
        )


def upload_folder(
    folder: str | Path,
    repository: str,
    private: bool | None = None,
    revision: str | None = None,
    token: str | bool | None = None,
    message: str | None = None,
    replaces: tuple[str, ...] = (),
) -> str:
    """Send the files of a folder in one commit, to a repository that is made if need be.

    Args:
        folder: Where the files are.
        repository: `namespace/name`.
        private: Whether a new repository is private. None: the namespace's default.
        revision: Branch, made from `main` where it does not exist. None: `main`.
        token: Access token; None or True: the one that the client finds.
        message: Of the commit.
        replaces: Names of files that go, where the repository has them and the folder has not.

    Returns:
        The URL of the commit.

    Raises:
        ValueError: If an argument cannot be one.
        UploadError: If the files cannot be sent; tells apart why.
    """
    check_repository(repository, token)
    api = HfApi(token=checked_token(token), library_name="keras_vit")
    try:
        api.create_repo(repository, private=private, exist_ok=True)
        _check_visibility(api, repository, private)
        if revision and not revision.startswith("refs/"):
            api.create_branch(repository, branch=revision, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repository,
            folder_path=folder,
            revision=revision,
            commit_message=message,
            delete_patterns=list(replaces) or None,
        )
    except HFValidationError as error:
        raise ValueError(f"`repo_id` is no name of a repository. {error}") from None
    except (OSError, httpx2.HTTPError) as error:
        # The client's own chain is several tracebacks long and says no more.
        raise _explained(error, api, repository, revision) from None
    return commit.commit_url


def _check_visibility(api: HfApi, repository: str, private: bool | None) -> None:
    """Refuse to publish what was meant to be private, in a repository that exists."""
    if private is None:
        return
    is_private = bool(api.model_info(repository).private)
    if is_private != private:
        raise UploadError(
            f"{repository!r} exists and is {'private' if is_private else 'public'}. Received: "
            f"private={private}. Change it at {constants.ENDPOINT}/{repository}/settings, leave "
            "`private` out, or give another name."
        )


def _explained(
    error: Exception, api: HfApi, repository: str, revision: str | None
) -> UploadError | OSError:
    """Return our error, with a remedy, for one of the client's; never with the token."""
    what = f"{repository!r} at revision {revision or 'main'!r}"
    for cause in causes(error):
        if isinstance(cause, UploadError):
            return cause
        if isinstance(cause, HfHubHTTPError):
            return UploadError(_answered(cause.response.status_code, api, repository, what))
        if isinstance(cause, httpx2.HTTPError):
            return UploadError(
                f"{what}: no connection to {constants.ENDPOINT} ({type(cause).__name__}). Check "
                "the network, HTTPS_PROXY and HF_ENDPOINT."
            )
    return error


def _answered(status: int, api: HfApi, repository: str, what: str) -> str:
    """Return what an answer of the Hub means for the user."""
    tokens = f"{constants.ENDPOINT}/settings/tokens"
    if status == 401:
        return f"{what}: the Hub rejects the token (status 401). It may have expired; {SIGN_IN}."
    if status in (403, 404):
        namespace = repository.partition("/")[0]
        own = _namespaces(api)
        if own and namespace not in own:
            return (
                f"{what}: there is no namespace {namespace!r} that this token may write to "
                f"(status {status}). It may write to: {', '.join(own)}. Give `repo_id` with one "
                f"of these, or {SIGN_IN} of another account."
            )
        return (
            f"{what}: the token may only read (status {status}). Make one with the role 'write' "
            f"at {tokens}, then {SIGN_IN}."
        )
    if status == 429:
        return f"{what}: too many requests (status 429). Wait, and try again."
    if status >= 500:
        return f"{what}: the Hub is out of order (status {status}). Try again later."
    return f"{what}: the Hub refuses the upload (status {status}). See {constants.ENDPOINT}/docs."


def _namespaces(api: HfApi) -> list[str]:
    """Return the user of the token and the user's organisations; nothing if it cannot be had."""
    try:
        user = api.whoami()
    except (OSError, httpx2.HTTPError):
        return []
    return [user["name"], *(organisation["name"] for organisation in user.get("orgs", ()))]

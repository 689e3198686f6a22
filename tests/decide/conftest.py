"""What the controller's tests have in common."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer to rewrite the transcripts."""
    parser.addoption(
        "--rewrite", action="store_true", help="write the scenarios' transcripts as they are now"
    )


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Say whether transcripts are to be written instead of compared."""
    return bool(request.config.getoption("--rewrite", default=False))

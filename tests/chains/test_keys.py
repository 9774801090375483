"""A chain may name any server: which of them is told an API key."""

from __future__ import annotations

import pytest

from edge_infer.errors import InputError
from edge_infer.platform.fetch import key_told_to

SERVER = "https://models.example.org/v2/models/m"


@pytest.mark.parametrize(
    ("server", "source", "told"),
    [
        (SERVER, "https://models.example.org/models/chain", "own"),
        (SERVER, "https://models.example.org:443/models/chain.zip", "own"),
        ("wss://models.example.org/v2/models/m", "https://models.example.org/models/chain", "own"),
        (SERVER, "http://models.example.org/models/chain", ""),
        (SERVER, "https://models.example.org:8443/models/chain", ""),
        (SERVER, "https://models.example.org.evil.example/models/chain", ""),
        ("https://models.example.org@evil.example/v2/models/m", "https://models.example.org/models/chain", ""),
        ("https://models.example.org:x/v2/models/m", "https://models.example.org/models/chain", ""),
        (SERVER, "chain.bundle", ""),
        ("http://10.0.0.1:8080/v2/models/m", "chain.bundle", "other"),
        ("ws://10.0.0.1:8080/v2/models/m", "https://models.example.org/models/chain", "other"),
    ],
)
def test_a_key_is_told_to_the_bundles_origin_and_to_whom_it_was_given_for(
    monkeypatch: pytest.MonkeyPatch, server: str, source: str, told: str
) -> None:
    monkeypatch.setenv("EDGE_INFER_API_KEY", "own")
    monkeypatch.setenv("EDGE_INFER_API_KEYS", "https://a.example=first http://10.0.0.1:8080=other")
    assert key_told_to(server, source) == ({"Authorization": f"Bearer {told}"} if told else {})


@pytest.mark.parametrize("given", ["secret", "models.example.org=secret", "https://models.example.org="])
def test_keys_that_are_no_pairs_are_refused_without_showing_them(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("EDGE_INFER_API_KEYS", given)
    with pytest.raises(InputError, match="ORIGIN=KEY") as caught:
        key_told_to(SERVER, "chain.bundle")
    assert "secret" not in str(caught.value)

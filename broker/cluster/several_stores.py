"""Several stores in one server: the options of each, and the names under which they are brokers of one cluster.

The n-th store has every port ten higher than the one before it, and what is kept for it lies in a folder of its own.
Names are settled when all stores are open; every worker process comes to the same ones.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from broker.config import STORE_PORT_DISTANCE, ServeOptions
from broker.endpoint import Endpoint
from protocol.errors import ConfigError
from storage.amounts import counted
from storage.files.write_guard import check_outside

if TYPE_CHECKING:  # the command line settles names before it loads the store
    from storage.store.store_state import StoreIdentity


def options_of_stores(
    stores: Sequence[Path], broker_names: Sequence[str], options: ServeOptions
) -> tuple[ServeOptions, ...]:
    """The options of each store; `options` are those of the first one, `broker_names` none or one for each.

    Raises `ConfigError` for options that cannot be meant for several stores, and whatever `ServeOptions.check` raises.
    """
    if broker_names and len(broker_names) != len(stores):
        raise ConfigError(
            f"--broker-name: {counted(len(broker_names), 'name')} for {counted(len(stores), 'store')}; give one each"
        )
    twice = {name for name in broker_names if broker_names.count(name) > 1}
    if twice:
        raise ConfigError(f"--broker-name {min(twice)} is given twice")
    if len(stores) > 1:
        _check_several(stores, options)
    made = []
    for number, store in enumerate(stores):
        own = replace(options, store=store, broker_name=broker_names[number] if broker_names else None)
        if len(stores) > 1:
            state = options.state_directory
            own = replace(
                own,
                listen=tuple(_shifted(endpoint, number) for endpoint in options.listen),
                advertise=None if options.advertise is None else _shifted(options.advertise, number),
                state_directory=None if state is None else state / folder_of(store),
            )
        made.append(own.check())
    if len(stores) > 1:
        _check_ports(made)
    return tuple(made)


def _check_several(stores: Sequence[Path], options: ServeOptions) -> None:
    """Raise `ConfigError` for what one store alone may have."""
    if options.commit_log_directories:
        raise ConfigError("--commit-log is for one store; serve this one by a separate command")
    if options.tier is not None:
        raise ConfigError("--tier is for one store; serve this one by a separate command")
    check_outside(stores, {"--state-dir": options.state_directory})
    places: dict[Path, Path] = {}
    for store in stores:
        place = store.resolve()
        if place in places:
            raise ConfigError(f"{places[place]} and {store} are one store: give it once")
        places[place] = store


def _check_ports(made: Sequence[ServeOptions]) -> None:
    """Raise `ConfigError` for an address that two stores would listen on."""
    owners: dict[Endpoint, Path] = {}
    for options in made:
        for endpoint in options.listen:
            if endpoint.port and owners.setdefault(endpoint, options.store) != options.store:
                raise ConfigError(
                    f"--listen: {owners[endpoint]} and {options.store} would both be at {endpoint}; each "
                    f"store listens on the ports {STORE_PORT_DISTANCE} higher than the store before it"
                )


def _shifted(endpoint: Endpoint, number: int) -> Endpoint:
    """The address of the n-th store, from that of the first one; port 0 stays what it is."""
    port = endpoint.port + number * STORE_PORT_DISTANCE if endpoint.port else 0
    if port > 65535:
        raise ConfigError(f"{endpoint}: store {number + 1} would need port {port}, and the last one is 65535")
    return endpoint._replace(port=port)


def folder_of(store: Path) -> str:
    """The name of a store's folder below `--state-dir`: the last part of its path, and a hash of all of it.

    It does not depend on which stores are served beside it, nor on their order.
    """
    place = store.resolve()
    name = re.sub(r"[^\w.-]", "_", "-".join(place.parts[-2:]).lstrip("/"))[-80:]
    return f"{name}-{hashlib.sha256(os.fsencode(place)).hexdigest()[:12]}"


# ---------------------------------------------------------------------- names


def settle_names(
    all_options: Sequence[ServeOptions], identities: "Sequence[StoreIdentity]"
) -> tuple[ServeOptions, ...]:
    """Return the options with the broker and cluster names under which the stores are served together.

    One cluster holds all, that of the first store unless `--cluster` names one. Of stores whose brokers have the same
    name, the later ones get a number behind it. Raises `ConfigError` where such a change would be registered with real
    name servers, which know the brokers by their own names.
    """
    cluster = all_options[0].cluster or identities[0].cluster
    names = list(_different(_wanted(all_options, identities)))
    settled = []
    for options, identity, name in zip(all_options, identities, names, strict=True):
        _check_registered(options, identity, name, cluster)
        settled.append(replace(options, broker_name=name, cluster=cluster))
    return tuple(settled)


def describe_names(settled: Sequence[ServeOptions], identities: "Sequence[StoreIdentity]") -> Iterator[str]:
    """A line for each store with its broker name, and why that is not the name its broker had."""
    for options, identity in zip(settled, identities, strict=True):
        line = f"{options.store} is broker {options.broker_name} of cluster {options.cluster}"
        own_names = []
        if identity.broker_name != options.broker_name:
            own_names.append(f"its own name is {identity.broker_name}")
        if identity.cluster != options.cluster:
            own_names.append(f"its own cluster is {identity.cluster}")
        yield f"{line} ({', '.join(own_names)})" if own_names else line


def _wanted(all_options: Sequence[ServeOptions], identities: "Sequence[StoreIdentity]") -> Iterator[str]:
    for options, identity in zip(all_options, identities, strict=True):
        yield options.broker_name or identity.broker_name


def _different(wanted: Iterator[str]) -> Iterator[str]:
    """Each name, repeated ones with the next free number behind them; names that the user gave are kept."""
    names = list(wanted)
    taken = set(names)
    seen: set[str] = set()
    for name in names:
        own, number = name, 1
        while own in seen or (number > 1 and own in taken):
            number += 1
            own = f"{name}-{number}"
        seen.add(own)
        yield own


def _check_registered(options: ServeOptions, identity: "StoreIdentity", name: str, cluster: str) -> None:
    if not options.register.name_servers:
        return
    if name != (options.broker_name or identity.broker_name):
        raise ConfigError(
            f"--register: {options.store} is not the only store of broker {identity.broker_name}; "
            "give each a --broker-name, in the order of the stores, or serve one of them alone"
        )
    if options.register.is_replica and options.cluster is None and identity.cluster != cluster:
        raise ConfigError(
            f"--register: {options.store} is of cluster {identity.cluster}, not of {cluster}; serve it by a "
            "separate command"
        )

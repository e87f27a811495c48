"""Leases in a Dask cluster, whose processes are killed. Run under `freehold run`."""

import gc
import os
import select
import signal
import subprocess
import sys

import cupy
import pytest
from distributed import Client, LocalCluster

import freehold.broker
from broker_support import PATIENCE, Server, eventually

# Leases that a worker keeps between its tasks.
KEPT = {}


def total(lease, factor):
    """A task: computes on the leased arrays."""
    return {key: float((array * factor).sum()) for key, array in lease.cupy().items()}


def keep(lease):
    """A task after which the worker holds the lease."""
    KEPT["lease"] = lease
    assert len(lease) == 2
    return os.getpid()


def let_go():
    KEPT.clear()
    gc.collect()


PUBLISHER = """
import os, site, sys
site.addsitedir(os.environ["FREEHOLD_TEST_PACKAGES"])
import cupy, freehold.broker
freehold.broker.connect(sys.argv[1]).publish("model", {"w": cupy.arange(1000.0), "b": cupy.ones(10)})
cupy.cuda.Device().synchronize()
print("published", flush=True)
sys.stdin.read()
"""

CLIENT = """
import os, site, sys
site.addsitedir(os.environ["FREEHOLD_TEST_PACKAGES"])
sys.path.insert(0, sys.argv[3])
import freehold.broker
from distributed import Client
from test_dask import total
client = Client(sys.argv[2])
lease = freehold.broker.connect(sys.argv[1]).lease("model")
print(client.submit(total, lease, 3).result(), flush=True)
sys.stdin.read()
"""

TOTALS = {"w": 499500.0, "b": 10.0}


def start(program, *arguments):
    """Starts a process. Returns it with the first line that it says."""
    command = [sys.executable, "-c", program, *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return process, process.stdout.readline().strip()


def kill(process):
    """Kills a process, and waits for its end."""
    descriptor = os.pidfd_open(process)
    os.kill(process, signal.SIGKILL)
    ended, _, _ = select.select([descriptor], [], [], PATIENCE)
    os.close(descriptor)
    assert ended


def readers(broker):
    return [name.readers for name in broker.names()]


def no_readers(broker, client):
    """Whether nobody leases the model. Dask drops what its tasks used a while after they are done."""
    client.run(let_go)
    gc.collect()
    return readers(broker) == [0]


@pytest.fixture(scope="module")
def server():
    server = Server()
    yield server
    server.close()


@pytest.fixture(scope="module")
def client():
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            yield client


@pytest.fixture
def broker(server, client):
    broker = freehold.broker.connect(server.socket)
    publisher, said = start(PUBLISHER, server.socket)
    assert said == "published"
    broker.publisher = publisher
    yield broker
    if publisher.poll() is None:
        publisher.communicate()
    publisher.stdin.close()
    publisher.stdout.close()
    eventually(lambda: no_readers(broker, client), "no process leases the model")
    broker.drop("model")
    eventually(lambda: broker.stats()[:3] == (0, 0, 0), "no memory is left at the broker")


def test_workers_compute_on_a_lease(broker, client):
    lease = broker.lease("model")
    futures = [client.submit(total, lease, factor) for factor in range(1, 7)]
    assert [future.result(PATIENCE)["w"] for future in futures] == [499500.0 * factor for factor in range(1, 7)]


def test_a_killed_worker_leaves_no_lease_and_the_others_continue(broker, client):
    lease = broker.lease("model")
    workers = list(client.scheduler_info()["workers"])
    assert len(workers) == 2
    processes = [client.submit(keep, lease, workers=[one], pure=False).result(PATIENCE) for one in workers]
    del lease
    gc.collect()
    eventually(lambda: readers(broker) == [2], "both workers hold a lease")
    kill(processes[0])
    eventually(lambda: readers(broker) == [1], "the lease of the killed worker has ended")
    assert client.submit(total, broker.lease("model"), 1, workers=[workers[1]]).result(PATIENCE) == TOTALS
    # Dask starts another worker in its place.
    client.wait_for_workers(2, timeout=PATIENCE)
    assert client.submit(total, broker.lease("model"), 2).result(PATIENCE) == {"w": 999000.0, "b": 20.0}


def test_the_model_outlives_its_killed_publisher(broker, client):
    lease = broker.lease("model")
    kill(broker.publisher.pid)
    broker.publisher.wait(PATIENCE)
    eventually(lambda: broker.names()[0].process == 0, "the broker knows that the publisher is gone")
    assert client.submit(total, lease, 1, pure=False).result(PATIENCE) == TOTALS
    assert client.submit(total, broker.lease("model"), 1, pure=False).result(PATIENCE) == TOTALS


def test_a_killed_client_leaves_no_lease_and_the_others_continue(broker, client, server):
    folder = os.path.dirname(os.path.abspath(__file__))
    other, said = start(CLIENT, server.socket, client.scheduler.address, folder)
    assert said == "{'w': 1498500.0, 'b': 30.0}"
    assert readers(broker)[0] >= 1
    kill(other.pid)
    other.wait(PATIENCE)
    other.stdin.close()
    other.stdout.close()
    eventually(lambda: no_readers(broker, client), "the lease of the killed client has ended")
    assert client.submit(total, broker.lease("model"), 1, pure=False).result(PATIENCE) == TOTALS

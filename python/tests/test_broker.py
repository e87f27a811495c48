"""Leases of arrays, within a process and in processes that multiprocessing starts. Run under `freehold run`."""

import gc
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys

import cupy
import numpy
import pytest
from numba import cuda

import freehold
import freehold.broker
from broker_support import PATIENCE, Server, eventually


@pytest.fixture(scope="module")
def server():
    server = Server()
    yield server
    server.close()


@pytest.fixture
def broker(server):
    broker = freehold.broker.connect(server.socket)
    yield broker
    for name in broker.names():
        broker.drop(name.name)
    gc.collect()
    # What the tests leased was returned, and its memory goes back.
    eventually(lambda: broker.stats()[:3] == (0, 0, 0), "nothing is leased or named")


def arrays():
    return {"w": cupy.arange(12, dtype="float32").reshape(3, 4), "b": cupy.full(5, 7, dtype="int64")}


def test_arrays_are_leased_as_they_were_published(broker):
    broker.publish("model", arrays())
    lease = broker.lease("model")
    assert (list(lease), len(lease), lease["w"].shape, lease["b"].dtype) == (["w", "b"], 2, (3, 4), "int64")
    assert lease["w"].is_read_only
    leased = lease.cupy()
    assert leased["w"].data.ptr == lease["w"].ptr
    assert cupy.asnumpy(leased["w"]).tolist() == numpy.arange(12).reshape(3, 4).tolist()
    assert cupy.asnumpy(leased["b"] * 2).tolist() == [14] * 5
    assert repr(lease) == f"<freehold.broker.Lease 'model': 2 arrays, {lease.nbytes} bytes, to read>"
    assert repr(lease["b"]).endswith('in lease "model", read-only>')


def test_a_single_array_has_an_empty_name(broker):
    broker.publish("one", cuda.to_device(numpy.arange(4)))
    assert broker.lease("one").numba()[""].copy_to_host().tolist() == [0, 1, 2, 3]


def test_strides_and_shared_memory_survive(broker):
    w = cupy.arange(12, dtype="float32").reshape(3, 4)
    broker.publish("views", {"w": w, "transposed": w.T, "empty": cupy.empty((0, 3)), "number": cupy.asarray(5.0)})
    lease = broker.lease("views")
    assert lease["w"].ptr == lease["transposed"].ptr
    leased = lease.cupy()
    assert cupy.asnumpy(leased["transposed"]).tolist() == cupy.asnumpy(w.T).tolist()
    assert (leased["empty"].shape, float(leased["number"])) == ((0, 3), 5.0)


def test_a_long_list_of_arrays_is_read_whole(broker):
    broker.publish("many", {f"layer.{index}": cupy.full(1, index) for index in range(500)})
    lease = broker.lease("many")
    assert len(lease) == 500
    assert int(cupy.asarray(lease["layer.499"])[0]) == 499


def test_a_replaced_name_leaves_its_readers_the_old_memory(broker):
    broker.publish("x", cupy.zeros(3))
    old = broker.lease("x")
    broker.publish("x", cupy.ones(3), replace=True)
    assert cupy.asnumpy(old.cupy()[""]).tolist() == [0] * 3
    assert cupy.asnumpy(broker.lease("x").cupy()[""]).tolist() == [1] * 3


def test_open_memory_is_written_in_place(broker):
    broker.publish("shared", cupy.zeros(3), policy="open")
    writer, reader = broker.lease("shared", access="write"), broker.lease("shared")
    assert not writer[""].is_read_only
    writer.cupy()[""].fill(4)
    cupy.cuda.Device().synchronize()
    assert cupy.asnumpy(reader.cupy()[""]).tolist() == [4] * 3


def test_the_bytes_of_another_publisher_are_leased(broker, server, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(bytes(range(100)))
    put = [os.environ["FREEHOLD_COMMAND"], "put", "--socket", server.socket, "--device", "soft", "raw", str(file)]
    subprocess.run(put, check=True, capture_output=True)
    assert cupy.asnumpy(cupy.asarray(broker.lease_bytes("raw"))).tolist() == list(range(100))
    with pytest.raises(ValueError, match="raw was published without a list of arrays"):
        broker.lease("raw")


def test_a_reader_keeps_its_generation_and_may_require_one(broker):
    broker.publish("model", arrays())
    old = broker.lease("model")
    assert broker.update("model", {"w": cupy.full(1000, 3, dtype="int16"), "more": cupy.zeros(2)}) == 2
    new = broker.lease("model@2")
    assert (old.generation, new.generation, list(new)) == (1, 2, ["w", "more"])
    assert cupy.asnumpy(old.cupy()["b"]).tolist() == [7] * 5
    assert cupy.asnumpy(new.cupy()["w"]).tolist() == [3] * 1000
    again = pickle.loads(pickle.dumps(new))
    assert (again.name, again.generation) == ("model@2", 2)
    with pytest.raises(ValueError, match="^model@1 is not the current generation: the broker has model@2$"):
        broker.lease("model@1")
    with pytest.raises(ValueError, match='^"two" is not a generation'):
        broker.lease("model@two")


def test_only_what_is_published_with_restore_has_generations(broker):
    with pytest.raises(LookupError, match="^model: there is no such name"):
        broker.update("model", cupy.zeros(1))
    broker.publish("shared", cupy.zeros(3), policy="open")
    with pytest.raises(ValueError, match="^shared is written in place and has no generations"):
        broker.update("shared", cupy.ones(3))
    assert cupy.asnumpy(broker.lease("shared").cupy()[""]).tolist() == [0] * 3


def safetensors(path, tensors):
    """Writes a file without the package, which is not a dependency."""
    header, data = {}, b""
    for name, (dtype, array) in tensors.items():
        header[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def test_a_file_of_tensors_is_put_and_updated(broker, server, tmp_path):
    file = tmp_path / "model.safetensors"
    w = numpy.arange(6, dtype="float32").reshape(2, 3)
    safetensors(file, {"w": ("F32", w), "b": ("I64", numpy.full(4, 9))})
    assert broker.put(file, "model") == 1
    lease = broker.lease("model")
    assert cupy.asnumpy(lease.cupy()["w"]).tolist() == w.tolist()
    put = [os.environ["FREEHOLD_COMMAND"], "put", "--socket", server.socket, "--device", "soft", file]
    subprocess.run([*put, "--as", "model", "--update"], check=True, capture_output=True)
    leased = broker.lease("model@2").cupy()
    assert (leased["w"].shape, cupy.asnumpy(leased["b"]).tolist()) == ((2, 3), [9] * 4)
    assert broker.put(file, "model", update=True) == 3
    assert broker.put(file, "model", replace=True) == 1
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match="the header describes 56 bytes of tensors, and the file has 55"):
        broker.put(file, "model", replace=True)
    assert broker.lease("model").generation == 1
    with pytest.raises(ValueError, match="replaced or updated"):
        broker.put(file, "model", replace=True, update=True)
    with pytest.raises(FileNotFoundError):
        broker.put(tmp_path / "none", "model")


def test_a_list_of_an_older_package_is_read(broker, server, tmp_path):
    text = b'{"version":1,"policy":"restore","arrays":{"x":{"dtype":"int16","shape":[3],"strides":[1],"offset":0}}}'
    header = b"FHARRAYS" + len(text).to_bytes(8, "little") + text
    file = tmp_path / "old"
    file.write_bytes(header.ljust(256, b"\0") + numpy.arange(3, dtype="int16").tobytes().ljust(256, b"\0"))
    put = [os.environ["FREEHOLD_COMMAND"], "put", "--socket", server.socket, "--device", "soft", "old", file]
    subprocess.run(put, check=True, capture_output=True)
    assert cupy.asnumpy(broker.lease("old").cupy()["x"]).tolist() == [0, 1, 2]


def test_a_lease_ends_after_its_arrays(broker):
    broker.publish("model", arrays())
    lease = broker.lease("model")
    array = lease["w"]
    with pytest.raises(BufferError, match="1 array uses the lease"):
        lease.close()
    assert broker.names()[0].readers == 1
    del array
    lease.close()
    lease.close()
    assert broker.names()[0].readers == 0
    assert lease.is_closed and repr(lease) == "<freehold.broker.Lease 'model', closed>"
    with pytest.raises(ValueError, match="the lease was closed"):
        lease["w"]
    with broker.lease("model"):
        assert broker.names()[0].readers == 1
    assert broker.names()[0].readers == 0


def test_an_array_outlives_its_lease(broker):
    broker.publish("model", arrays())
    array = broker.lease("model").cupy()["b"]
    gc.collect()
    assert broker.names()[0].readers == 1
    assert cupy.asnumpy(array).tolist() == [7] * 5


def test_readers_wait_on_the_device_for_the_publishers_work(broker, driver):
    own, consumer = driver.stream(), driver.stream()
    block = freehold.alloc(4096, stream=own)
    open_gate = driver.gate(own)
    driver.fill(block, 5, own)
    broker.publish("late", block)
    broker.publish("another", freehold.alloc(64))
    lease = broker.lease("late")
    array = lease[""]
    capsule = array.__dlpack__(stream=consumer, max_version=(1, 0))
    assert not driver.is_idle(consumer)
    open_gate()
    assert driver.read(array) == bytes([5]) * 4096
    del capsule


def test_leased_memory_is_kept_until_the_work_with_it_is_done(broker, driver):
    consumer = driver.stream()
    broker.publish("used", cupy.zeros(1000))
    lease = broker.lease("used")
    nbytes = lease.nbytes
    driver.synchronize()
    lease[""].__dlpack__(stream=consumer, max_version=(1, 0))
    open_gate = driver.gate(consumer)
    lease.close()
    broker.drop("used")
    # A lease that nothing uses is gone when its publisher's copy is done. The one in use stays.
    broker.publish("unused", cupy.zeros(1000))
    broker.lease("unused").close()
    broker.drop("unused")
    eventually(lambda: (now := broker.stats()).leases == 1 and now.leased == nbytes, "the unused lease has ended")
    open_gate()
    eventually(lambda: broker.stats().leases == 0, "the lease has ended")


def test_a_write_through_a_read_lease_is_refused_by_the_device(server):
    program = f"""
import cupy, freehold.broker
broker = freehold.broker.connect({server.socket!r})
broker.publish("refused", cupy.zeros(3))
broker.lease("refused").cupy()[""].fill(1)
try:
    cupy.cuda.Device().synchronize()
except cupy.cuda.runtime.CUDARuntimeError as error:
    print(error)
"""
    outcome = run(program)
    assert "cudaErrorIllegalAddress" in outcome.stdout, outcome.stdout + outcome.stderr
    freehold.broker.connect(server.socket).drop("refused")


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda broker: broker.lease("nothing"), LookupError, "nothing: there is no such name"),
        (lambda broker: broker.drop("nothing"), LookupError, "nothing: there is no such name"),
        (lambda broker: broker.publish("a b", cupy.zeros(1)), ValueError, "invalid byte 1 in the name"),
        (lambda broker: broker.publish("taken", cupy.zeros(1)), ValueError, "the name is taken"),
        (lambda broker: broker.publish("x", {}), ValueError, "nothing to publish"),
        (lambda broker: broker.publish("x", {"w": [1]}), TypeError, "array 'w' cannot be published: list is not an array"),
        (lambda broker: broker.publish("x", numpy.zeros(3)), TypeError, "the host's, not CUDA memory"),
        (lambda broker: broker.publish("x", cupy.zeros(1), policy="shut"), ValueError, '"shut" is not a policy'),
        (lambda broker: broker.publish("x", cupy.zeros(100 << 20, "int8")), MemoryError, "64 MiB"),
        (lambda broker: broker.lease("taken", access="look"), ValueError, '"look" is not an access'),
        (lambda broker: broker.lease("taken", access="write"), ValueError, "taken has the policy 'restore'"),
        (lambda broker: broker.lease("taken")["w"], KeyError, "taken has no array 'w'"),
    ],
)
def test_a_wrong_call_raises_one_sentence(broker, call, error, text):
    broker.publish("taken", cupy.zeros(1))
    with pytest.raises(error, match=text) as raised:
        call(broker)
    assert "\n" not in str(raised.value)


def test_without_a_broker_the_error_says_how_to_start_one(tmp_path):
    with pytest.raises(ConnectionError, match="no broker is running at .*: start one with `freehold serve`"):
        freehold.broker.connect(tmp_path / "nobody")
    with pytest.raises(ValueError, match="a socket path at most 107"):
        freehold.broker.connect("/" + "x" * 200)


def test_without_a_driver_the_error_names_it(server):
    program = f"import freehold.broker; freehold.broker.connect({server.socket!r})"
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("LD_", "FREEHOLD_"))}
    outcome = run(program, env=environment)
    assert "freehold.Error: cuda:0 was requested, but libcuda.so.1 is not on this machine" in outcome.stderr


def run(program, **settings):
    """Runs a program in a process of its own, with the packages of these tests."""
    program = "import os, site\nif 'PACKAGES' in os.environ: site.addsitedir(os.environ['PACKAGES'])\n" + program
    settings.setdefault("env", {**os.environ, "PACKAGES": os.environ["FREEHOLD_TEST_PACKAGES"]})
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, **settings)


def test_what_a_process_published_stays_when_it_has_ended(broker, server):
    program = f"import cupy, freehold.broker; freehold.broker.connect({server.socket!r}).publish('left', cupy.arange(10))"
    outcome = run(program)
    assert (outcome.returncode, outcome.stderr) == (0, "")
    eventually(lambda: broker.names()[0].process == 0, "the publisher is gone")
    assert cupy.asnumpy(broker.lease("left").cupy()[""]).tolist() == list(range(10))


# What follows runs in processes that multiprocessing starts, which import this file.


def total(lease):
    return {key: float(array.sum()) for key, array in lease.cupy().items()}


def answer(lease, answers, held):
    answers.put((os.getpid(), total(lease)))
    held.wait(PATIENCE)


def test_a_lease_pickles_as_its_name(broker):
    broker.publish("model", arrays())
    lease = broker.lease("model")
    text = pickle.dumps(lease)
    assert len(text) < 300
    again = pickle.loads(text)
    assert repr(again) == "<freehold.broker.Lease 'model', not used yet>"
    assert (again.name, again["w"].ptr) == ("model", lease["w"].ptr)
    broker.drop("model")
    unused = pickle.loads(text)
    with pytest.raises(LookupError, match="model: there is no such name"):
        unused["w"]
    unused.close()
    with pytest.raises(ValueError, match="the lease was closed"):
        unused["w"]


def test_a_lease_travels_through_a_pool(broker):
    broker.publish("model", arrays())
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(total, [broker.lease("model")] * 4) == [{"w": 66.0, "b": 35.0}] * 4


def test_a_killed_process_leaves_no_lease(broker):
    broker.publish("model", arrays())
    spawn = multiprocessing.get_context("spawn")
    # Each has an event of its own: one on which a killed process waits cannot be set.
    answers, held = spawn.Queue(), [spawn.Event() for _ in range(2)]
    processes = [spawn.Process(target=answer, args=(broker.lease("model"), answers, one)) for one in held]
    for process in processes:
        process.start()
    got = dict(answers.get(timeout=PATIENCE) for _ in processes)
    assert list(got.values()) == [{"w": 66.0, "b": 35.0}] * 2
    gc.collect()
    assert broker.names()[0].readers == 2
    os.kill(processes[0].pid, signal.SIGKILL)
    processes[0].join(PATIENCE)
    eventually(lambda: broker.names()[0].readers == 1, "the lease of the killed process has ended")
    held[1].set()
    processes[1].join(PATIENCE)
    assert processes[1].exitcode == 0
    eventually(lambda: broker.names()[0].readers == 0, "all leases have ended")


def test_the_child_of_a_fork_is_told_to_connect_again(broker):
    broker.publish("model", arrays())
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            broker.lease("model")
        except Exception as error:
            os.write(writer, f"{type(error).__name__}: {error}".encode())
        os._exit(0)
    os.close(writer)
    assert os.waitpid(child, 0)[1] == 0
    assert b"this process is a fork of" in os.read(reader, 1000)

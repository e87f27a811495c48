// Objects of the program that graphs keep alive. The destructor runs in a thread of the driver, some time after the last
// reference is gone, so the program waits for it.
#include "show.h"
#include <atomic>
#include <chrono>
#include <thread>

static std::atomic<int> destroyed(0);

static void CUDART_CB destroy(void *data) { destroyed += *(int *)data; }

static void wait_for(int count) {
    for (int i = 0; i < 10000 && destroyed != count; i++) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    printf("destroyed %d\n", destroyed.load());
}

int main() {
    int one = 1, ten = 10, hundred = 100;
    cudaUserObject_t object;
    // By its references alone.
    CHECK(cudaUserObjectCreate(&object, &one, destroy, 1, cudaUserObjectNoDestructorSync));
    CHECK(cudaUserObjectRetain(object, 2));
    CHECK(cudaUserObjectRelease(object, 2));
    printf("destroyed %d\n", destroyed.load());
    CHECK(cudaUserObjectRelease(object, 1));
    wait_for(1);

    // By a graph that takes over the reference, its copy, and the executable graph.
    cudaGraph_t graph, copy;
    cudaGraphExec_t exec;
    cudaGraphNode_t node;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddEmptyNode(&node, graph, NULL, 0));
    CHECK(cudaUserObjectCreate(&object, &ten, destroy, 1, cudaUserObjectNoDestructorSync));
    CHECK(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
    CHECK(cudaGraphClone(&copy, graph));
    CHECK(cudaGraphInstantiate(&exec, copy, 0));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphDestroy(copy));
    CHECK(cudaGraphLaunch(exec, 0));
    CHECK(cudaDeviceSynchronize());
    printf("destroyed %d\n", destroyed.load());
    CHECK(cudaGraphExecDestroy(exec));
    wait_for(11);

    // By a graph that gives the references back.
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaUserObjectCreate(&object, &hundred, destroy, 1, cudaUserObjectNoDestructorSync));
    CHECK(cudaGraphRetainUserObject(graph, object, 2, 0));
    CHECK(cudaUserObjectRelease(object, 1));
    CHECK(cudaGraphReleaseUserObject(graph, object, 1));
    printf("destroyed %d\n", destroyed.load());
    CHECK(cudaGraphReleaseUserObject(graph, object, 1));
    wait_for(111);
    CHECK(cudaGraphDestroy(graph));
    SHOW(cudaUserObjectCreate(&object, &one, NULL, 1, cudaUserObjectNoDestructorSync));
    SHOW(cudaUserObjectCreate(&object, &one, destroy, 1, 0));
    return 0;
}

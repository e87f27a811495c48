// A list on the device's heap: each thread makes, walks and frees its own.
// launch: malloc_list grid 2 block 40
// arg: out u32 80
// arg: out u32 80

struct Node {
    unsigned value;
    Node *next;
};

extern "C" __global__ void malloc_list(unsigned *sums, unsigned *aligned) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, sum = 0;
    Node *first = nullptr;
    for (unsigned k = 0; k < 1 + i % 5; k++) {
        Node *node = (Node *)malloc(sizeof(Node));
        node->value = 10 * i + k;
        node->next = first;
        first = node;
    }
    aligned[i] = (unsigned long long)first % 16 == 0;
    while (first) {
        Node *next = first->next;
        sum = sum * 3 + first->value;
        free(first);
        first = next;
    }
    free(nullptr);
    sums[i] = sum;
}

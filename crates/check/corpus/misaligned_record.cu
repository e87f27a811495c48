// Records of six bytes: a tag of two and a number of four. Reading the number as an int is misaligned in every second record.
// On a GPU the kernel ends with cudaErrorMisalignedAddress; a CPU reads it without complaint.
// Origin: file formats that are parsed on the device.
// kind: misaligned
#include "corpus.h"

__global__ void parse(const char *records, int *out) {
    int i = threadIdx.x;
    const char *number = records + i * 6 + 2;
#ifdef FIXED
    out[i] = (number[0] & 255) | (number[1] & 255) << 8 | (number[2] & 255) << 16 | number[3] << 24;
#else
    out[i] = *reinterpret_cast<const int *>(number); // access
#endif
}

int main() {
    char bytes[6 * THREADS] = {};
    for (int i = 0; i < THREADS; i++) bytes[6 * i + 2] = (char)i;
    char *records = NULL;
    int *out = new_zeroed(THREADS);
    CHECK(cudaMalloc(&records, sizeof(bytes)));
    CHECK(cudaMemcpy(records, bytes, sizeof(bytes), cudaMemcpyHostToDevice));
    parse<<<1, THREADS>>>(records, out);
    bool is_right = is_linear(read_back(out, THREADS), 1, 0);
    CHECK(cudaFree(records));
    CHECK(cudaFree(out));
    return finish(is_right);
}

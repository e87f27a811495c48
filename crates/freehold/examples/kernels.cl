// Kernels of the examples and tests, for one work-item a value: those of kernels.ptx, in OpenCL C.

__kernel void scale(__global float *x, float by, uint n) {
    uint i = (uint)get_global_id(0);
    if (i < n) {
        x[i] *= by;
    }
}

// OpenCL C 1.2 has no atomic addition of floats: the bits are exchanged instead.
__kernel void sum(__global const float *x, __global float *total, uint n) {
    uint i = (uint)get_global_id(0);
    if (i >= n) {
        return;
    }
    __global volatile uint *word = (__global volatile uint *)total;
    uint before, after;
    do {
        before = *word;
        after = as_uint(as_float(before) + x[i]);
    } while (atomic_cmpxchg(word, before, after) != before);
}

__kernel void add(__global uint *x, uint more, uint n) {
    uint i = (uint)get_global_id(0);
    if (i < n) {
        x[i] += more;
    }
}

// Runs until *gate is not zero.
__kernel void wait(__global volatile uint *gate) {
    while (*gate == 0) {
    }
}

__kernel void nothing(void) {}

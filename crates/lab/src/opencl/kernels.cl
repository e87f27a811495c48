// The kernels of the experiments.

__kernel void store(__global uint *to, uint value) { *to = value; }

__kernel void copy(__global const uint *from, __global uint *to) { to[get_global_id(0)] = from[get_global_id(0)]; }

// Runs until the word is set, or for `turns` looks at it, and then stores the value.
__kernel void spin(__global volatile uint *word, __global uint *to, uint value, ulong turns) {
    word[16] = 1;
    for (ulong turn = 0; turn < turns && word[0] == 0; turn++) {
    }
    *to = value;
}

// Stores through an address that lies in memory.
__kernel void follow(__global const ulong *place, uint value) { *(__global uint *)*place = value; }

__kernel void shared(__local uint *scratch, __global uint *to) {
    scratch[get_local_id(0)] = (uint)get_local_id(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_local_id(0) == 0) {
        uint sum = 0;
        for (uint at = 0; at < get_local_size(0); at++) {
            sum += scratch[at];
        }
        *to = sum;
    }
}

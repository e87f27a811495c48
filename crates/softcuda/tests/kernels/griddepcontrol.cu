// griddepcontrol: a grid that depends on none waits for nothing.
// launch: griddepcontrol grid 4 block 64
// arg: out u32 256


extern "C" __global__ void griddepcontrol(unsigned *out) {
    unsigned i = blockIdx.x * 64 + threadIdx.x;
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    out[i] = i;
    asm volatile("griddepcontrol.wait;" ::: "memory");
    out[i] = out[i] * 3 + 1;
}

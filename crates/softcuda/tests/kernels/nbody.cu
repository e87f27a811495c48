// One step of bodies that attract each other, with the division and the root that IEEE fixes.
// launch: nbody grid 2 block 32
// arg: out f32 256
// arg: in f32 256 random 40

extern "C" __global__ void nbody(float4 *next, const float4 *bodies) {
    __shared__ float4 near[32];
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 me = bodies[i];
    float x = 0, y = 0, z = 0;
    for (unsigned tile = 0; tile < gridDim.x; tile++) {
        near[threadIdx.x] = bodies[tile * 32 + threadIdx.x];
        __syncthreads();
        for (unsigned k = 0; k < 32; k++) {
            float dx = near[k].x - me.x, dy = near[k].y - me.y, dz = near[k].z - me.z;
            float square = dx * dx + dy * dy + dz * dz + 0.01f;
            float pull = near[k].w / (square * sqrtf(square));
            x += dx * pull;
            y += dy * pull;
            z += dz * pull;
        }
        __syncthreads();
    }
    next[i] = make_float4(me.x + x, me.y + y, me.z + z, me.w);
}

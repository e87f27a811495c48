; Floating point with fences of LLVM's own: comparisons of every kind, conversions, an fma and selects.
; launch: llvm_fast_math grid 4 block 100
; arg: out f32 400
; arg: out u32 400
; arg: in f32 400 corners slow
; arg: in f32 400 corners

target datalayout = "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64:64:64-v16:16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64"
target triple = "nvptx64-nvidia-cuda"

declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare float @llvm.fma.f32(float, float, float)

define void @llvm_fast_math(float* %out, i32* %masks, float* %left, float* %right) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ntid = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %cta = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %base = mul i32 %ntid, %cta
  %i = add i32 %base, %tid
  %pl = getelementptr float, float* %left, i32 %i
  %pr = getelementptr float, float* %right, i32 %i
  %x = load float, float* %pl
  %y = load float, float* %pr
  %ult = fcmp ult float %x, %y
  %oge = fcmp oge float %x, %y
  %one = fcmp one float %x, %y
  %ueq = fcmp ueq float %x, %y
  %uno = fcmp uno float %x, %y
  %b0 = zext i1 %ult to i32
  %b1 = zext i1 %oge to i32
  %b2 = zext i1 %one to i32
  %b3 = zext i1 %ueq to i32
  %b4 = zext i1 %uno to i32
  %s1 = shl i32 %b1, 1
  %s2 = shl i32 %b2, 2
  %s3 = shl i32 %b3, 3
  %s4 = shl i32 %b4, 4
  %m1 = or i32 %b0, %s1
  %m2 = or i32 %m1, %s2
  %m3 = or i32 %m2, %s3
  %m4 = or i32 %m3, %s4
  %smaller = select i1 %ult, float %x, float %y
  %squared = call float @llvm.fma.f32(float %smaller, float %smaller, float %y)
  %po = getelementptr float, float* %out, i32 %i
  %pm = getelementptr i32, i32* %masks, i32 %i
  store float %squared, float* %po
  store i32 %m4, i32* %pm
  ret void
}

!nvvm.annotations = !{!0}
!0 = !{void (float*, i32*, float*, float*)* @llvm_fast_math, !"kernel", i32 1}
!nvvmir.version = !{!1}
!1 = !{i32 2, i32 0}

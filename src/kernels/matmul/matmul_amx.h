// bf16 products on AMX tiles by our own kernel.
#pragma once

#include "kernels/matmul/matmul.h"

namespace filigree {

// Whether the kernel takes this product: bf16 operands, AMX, and enough rows to pay for packing b.
bool takes_matmul_amx(const MatmulArgs& args);
void matmul_amx(Device& device, const MatmulArgs& args);

}  // namespace filigree

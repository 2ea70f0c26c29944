#include "core/upload.h"

namespace filigree {

Upload::Upload(Device& device, Purpose purpose, DType dtype, Shape shape)
    : device_(device), tensor_(device.memory().tensor(purpose, dtype, shape)) {
  if (!device.is_cuda()) return;
  host_ = cuda::allocate_host(tensor_.view().bytes());
  sent_ = cuda::create_event();
  read_ = cuda::create_event();
}

Upload::~Upload() {
  if (!device_.is_cuda()) return;
  cuda::destroy_event(read_);
  cuda::destroy_event(sent_);
  cuda::release_host(host_);  // waits for a copy that still reads it
}

void* Upload::host() const {
  if (!device_.is_cuda()) return tensor_.view().data;
  cuda::synchronize(sent_);
  return host_;
}

void Upload::send() {
  if (!device_.is_cuda()) return;
  cuda::wait(device_.copy_stream(), read_);
  cuda::copy(tensor_.view().data, host_, tensor_.view().bytes(), cuda::Copy::to_device, device_.copy_stream());
  cuda::record(sent_, device_.copy_stream());
}

const Tensor& Upload::receive() const {
  if (device_.is_cuda()) cuda::wait(device_.stream(), sent_);
  return tensor_.view();
}

void Upload::release() {
  if (device_.is_cuda()) cuda::record(read_, device_.stream());
}

}  // namespace filigree

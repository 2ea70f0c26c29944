// An array that the host writes for a device to read, copied beside the device's work and not in its order. Two of them
// in turn keep both busy: while kernels read the one, the host fills the other.
//
//   upload.host() is filled;  upload.send();
//   work on upload.receive() is called;  upload.release();
//
// and again from the start. On the CPU, host() is the tensor itself and nothing is copied.
#pragma once

#include "core/device.h"

namespace filigree {

class Upload {
 public:
  // The host's side is page-locked on a GPU. `device` must outlive the Upload.
  Upload(Device& device, Purpose purpose, DType dtype, Shape shape);
  Upload(Upload&&) = delete;
  ~Upload();

  // The host's side, as large as the tensor. Waits for the last copy from it.
  void* host() const;
  // Begins the copy, behind the work that the last release() closed; returns at once. host() may not be written to
  // before it is asked for again.
  void send();
  // The tensor: work called from now on runs behind the copy.
  const Tensor& receive() const;
  // All work that reads what was received has been called.
  void release();

 private:
  Device& device_;
  OwnedTensor tensor_;
  void* host_ = nullptr;
  CUevent_st* sent_ = nullptr;
  CUevent_st* read_ = nullptr;
};

}  // namespace filigree

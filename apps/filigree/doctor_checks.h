// What `filigree doctor` looks for on this machine.
#pragma once

#include <string>
#include <vector>

namespace filigree {

struct DoctorCheck {
  std::string name;
  bool found = false;
  bool needed = false;  // without it this build does not compute as it is meant to
  std::string value;    // what was found: versions, sizes
  std::string advice;   // where it was not: what it would be for, and how to get it
};

std::vector<DoctorCheck> doctor_checks();

}  // namespace filigree

#pragma once

namespace CLI {
class App;
}

namespace filigree {

// Adds `filigree doctor`: what was found on this machine, what is missing and how to get it.
void add_doctor_command(CLI::App& program);

}  // namespace filigree

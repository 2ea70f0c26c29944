// SIGINT and SIGTERM as a flag that long work asks for between its steps. A second signal ends the program at once.
#pragma once

namespace filigree {

// Installs the handlers; called once by the program, never by the library.
void catch_interrupts();
bool interrupt_requested();

}  // namespace filigree

// SIGINT and SIGTERM as a flag that long work asks for between its steps. A second signal ends the program at once. A
// broken pipe sets the flag as well, and never ends the program: it would leave unfinished files behind.
#pragma once

namespace filigree {

// Installs the handlers; called once by the program, never by the library.
void catch_interrupts();
bool interrupt_requested();
// What the first signal writes to standard error at once; a text that lives as long as the program, null for none.
void set_interrupt_notice(const char* text);

}  // namespace filigree

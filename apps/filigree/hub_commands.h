// `filigree import`, `filigree export`: Hugging Face folders in and out.
#pragma once

namespace CLI {
class App;
}

namespace filigree {

void add_import_command(CLI::App& program);
void add_export_command(CLI::App& program);

}  // namespace filigree

/* foldback ready. */
#include "server/cli/cli.h"

int fb_cli_ready(fb_cli *cli) {
    fb_address address = {0};
    json_t *answer;
    if (!cli->values.server) cli->values.server = "http://127.0.0.1:8080";
    fb_address_path(&address, "/readyz");
    int result = fb_cli_get(cli, &address, &answer, NULL);
    if (result) return result;
    if (cli->is_json) result = fb_cli_print_json(answer);
    else puts(fb_text_of(answer, "status"));
    json_decref(answer);
    return result;
}

/* foldback completion: the script for a shell; foldback complete: what that script offers, a line each. */
#include <stdlib.h>
#include <string.h>

#include "completions.inc"
#include "core/compose/composition.h"
#include "core/graph/graph.h"
#include "core/passes/passes.h"
#include "server/cli/cli.h"
#include "server/cli/options.h"

#define PATIENCE_MS 1500 /* with a service: a user who presses a key does not wait longer */
#define MODELS_MAX 20    /* whose aliases or versions are asked for */

static int print_completion(fb_cli *cli) {
    const char *shell = cli->arguments.items[0];
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        if (strcmp(scripts[i].shell, shell) != 0) continue;
        fwrite(scripts[i].text, 1, scripts[i].size, stdout);
        return FB_EXIT_DONE;
    }
    return fb_complain(FB_EXIT_USAGE, "completion: there is a script for bash, zsh and fish, not for %s", shell);
}

/* ---- the line so far ---------------------------------------------------------------------------------------------------- */

typedef struct line {
    fb_cli cli;                 /* its verb, place and client; arguments before the word in hand */
    char *noun;                 /* the first word, while the verb is not known */
    const fb_option *option;    /* whose value the word is, or NULL */
    const char *current, *head; /* the word in hand; the part before it in the same word: "MergeLinears," */
    int head_length;
} line;

static bool begins(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

/* "value", TAB, "description", when the value begins like the word in hand. */
static void offer(const line *l, const char *value, const char *description) {
    if (!*value || !begins(value, l->current)) return;
    printf("%.*s", l->head_length, l->head);
    fb_screen_text(stdout, value);
    if (description && *description) {
        fputs("\t", stdout);
        fb_screen_text(stdout, description);
    }
    fputs("\n", stdout);
}

static void keep_place(line *l, const fb_option *option, const char *value) {
    fb_cli_values *values = &l->cli.values;
    if (strcmp(option->name, "data") == 0) values->data = value;
    else if (strcmp(option->name, "server") == 0) values->server = value;
    else if (strcmp(option->name, "token-file") == 0) values->token_file = value;
    else if (strcmp(option->name, "ca-file") == 0) values->ca_file = value;
}

/* Takes a word before the one in hand. True: the next one is the value of `l->option`. */
static bool take_option(line *l, const char *word) {
    const char *value;
    l->option = fb_option_find(l->cli.verb ? l->cli.verb->options : fb_leading_options, word, &value);
    bool wants_value = l->option && l->option->argument && !value;
    if (l->option && value) keep_place(l, l->option, value);
    if (!wants_value) l->option = NULL;
    return wants_value;
}

static void take_word(line *l, char *word, char *next) {
    int words;
    if (l->cli.verb) {
        l->cli.arguments.items[l->cli.arguments.count++] = word;
    } else if (l->noun) {
        l->cli.verb = fb_verb_find(l->noun, word, &words);
    } else {
        l->noun = word;
        l->cli.verb = fb_verb_find(word, next, &words);
        if (l->cli.verb && words == 2) l->cli.verb = NULL; /* with the next word */
    }
}

static void read_line(line *l, int argc, char **argv) {
    for (int i = 0; i + 1 < argc; i++) {
        if (l->option) {
            keep_place(l, l->option, argv[i]);
            l->option = NULL;
        } else if (argv[i][0] == '-' && argv[i][1]) {
            take_option(l, argv[i]);
        } else {
            take_word(l, argv[i], i + 2 < argc ? argv[i + 1] : NULL);
        }
    }
    l->current = argc ? argv[argc - 1] : "";
}

/* ---- what the store has ------------------------------------------------------------------------------------------------- */

/* NULL when it does not say. */
static json_t *ask(line *l, fb_address *address) {
    fb_call call = {.method = "GET", .address = *address};
    fb_answer answer;
    if (fb_cli_try(&l->cli, &call, &answer)) return NULL;
    json_t *found = answer.status == 200 ? json_loadb(answer.body.data, answer.body.size, 0, NULL) : NULL;
    fb_answer_free(&answer);
    return found;
}

static json_t *ask_list(line *l, const char *list, const char *limit) {
    fb_address address = {0};
    fb_address_path(&address, list);
    fb_address_query(&address, "limit", limit);
    return ask(l, &address);
}

/* Words of usage lines whose values are the items of a list; `description` may be NULL. */
static const struct listing {
    const char *word, *list, *member, *description;
} listings[] = {
    {"RUN", "/v1/runs", "id", "created"},     {"ID", "/v1/graphs", "id", "name"},
    {"MODEL", "/v1/models", "name", NULL},    {"RULE", "/v1/transformations", "name", "description"},
    {"TOKEN", "/v1/tokens", "name", "scope"}, {"JOB", "/v1/jobs", "id", "state"},
    {"DIGEST", "/v1/blobs", "digest", NULL},
};

/* Offers nothing for a word that has no list. */
static void offer_list(line *l, const char *word) {
    const struct listing *which = listings, *end = listings + sizeof listings / sizeof *listings;
    while (which < end && strcmp(which->word, word) != 0) which++;
    if (which == end) return;
    json_t *found = ask_list(l, which->list, "200");
    const json_t *one;
    size_t i;
    json_array_foreach(json_object_get(found, "items"), i, one)
        offer(l, fb_text_of(one, which->member), which->description ? fb_text_of(one, which->description) : NULL);
    json_decref(found);
}

/* "bert@champion" or "bert:v2", or the second part alone. */
static void offer_parts(line *l, const char *model, const char *list, const char *member, char sign) {
    char whole[2 * FB_NAME_MAX + 2];
    const json_t *one;
    size_t i;
    fb_address address = {0};
    fb_address_path(&address, "/v1/models");
    fb_address_segment(&address, model);
    fb_address_segment(&address, list);
    fb_address_query(&address, "limit", "200");
    json_t *found = ask(l, &address);
    json_array_foreach(json_object_get(found, "items"), i, one) {
        const char *part = fb_text_of(one, member);
        if (sign) snprintf(whole, sizeof whole, "%s%c%s", model, sign, part);
        offer(l, sign ? whole : part, fb_text_of(one, sign == '@' ? "version" : "note"));
    }
    json_decref(found);
}

/* Offers names of the models that begin like the word in hand, before its @ or colon. */
static void offer_of_models(line *l, const char *list, const char *member, char sign) {
    size_t length = strcspn(l->current, "@:"), asked = 0, i;
    bool is_whole = l->current[length];
    if (is_whole && l->current[length] != sign) return;
    json_t *models = ask_list(l, "/v1/models", "1000");
    const json_t *one;
    json_array_foreach(json_object_get(models, "items"), i, one) {
        const char *name = fb_text_of(one, "name");
        bool is_it = strncmp(name, l->current, length) == 0 && (!is_whole || strlen(name) == length);
        if (is_it && asked++ < MODELS_MAX) offer_parts(l, name, list, member, sign);
    }
    json_decref(models);
}

/* ---- kinds of words ----------------------------------------------------------------------------------------------------- */

static void offer_files(line *l) {
    (void)l;
    puts(":files");
}

static void offer_aliases(line *l) {
    offer_of_models(l, "aliases", "alias", '@');
}

static void offer_model_versions(line *l) {
    offer_of_models(l, "versions", "version", ':');
}

/* Offers versions of the model that an earlier argument names. */
static void offer_versions(line *l) {
    char model[FB_NAME_MAX + 1];
    if (!l->cli.arguments.count) return;
    snprintf(model, sizeof model, "%.*s", (int)strcspn(l->cli.arguments.items[0], "@:"), l->cli.arguments.items[0]);
    offer_parts(l, model, "versions", "version", '\0');
}

/* Ids where the word begins like one: there are many. */
static void offer_stored(line *l) {
    if (begins(l->current, "run_")) offer_list(l, "RUN");
    if (begins(l->current, "sha256:")) offer_list(l, "ID");
    offer_aliases(l);
    offer_model_versions(l);
}

static void offer_graphs(line *l) {
    offer_files(l);
    offer_stored(l);
}

static void offer_things(line *l) {
    offer_list(l, "MODEL");
    offer_graphs(l);
}

static void offer_passes(line *l) {
    for (size_t i = 0; fb_pass_at(i); i++) offer(l, fb_pass_at(i)->name, fb_pass_at(i)->summary);
    for (size_t i = 0; fb_preset_at(i); i++) offer(l, fb_preset_at(i)->name, fb_preset_at(i)->summary);
    offer_list(l, "RULE");
}

static void offer_verbs(line *l) {
    const char *noun = l->cli.verb ? l->cli.arguments.items[0] : l->noun; /* of help it is an argument, or NULL */
    size_t length = noun ? strlen(noun) : 0;
    char last[32] = "";
    const fb_verb *verb;
    for (size_t i = 0; (verb = fb_verb_at(i, NULL)); i++) {
        char word[32];
        size_t first = strcspn(verb->name, " ");
        if (verb->now) continue;
        if (noun && first == length && begins(verb->name, noun) && verb->name[first]) {
            offer(l, verb->name + first + 1, verb->summary);
        } else if (!noun) {
            snprintf(word, sizeof word, "%.*s", (int)first, verb->name);
            if (strcmp(word, last) != 0) offer(l, word, verb->name[first] ? "" : verb->summary);
            strcpy(last, word);
        }
    }
}

static void offer_states(line *l) {
    static const char *const states[] = {"queued", "running", "succeeded", "failed", "cancelled"};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) offer(l, states[i], NULL);
}

static void offer_ops(line *l) {
    for (fb_opcode op = FB_PLACEHOLDER; op <= FB_OUTPUT; op++) offer(l, fb_opcode_name(op), NULL);
}

static const struct {
    const char *word; /* in a usage line */
    void (*offer)(line *l);
} kinds[] = {
    {"FILE", offer_files},
    {"DIR", offer_files},
    {"FOLDER", offer_files},
    {"GRAPH", offer_graphs},
    {"SOURCE", offer_graphs},
    {"RESULT", offer_graphs},
    {"THING", offer_things},
    {"PASS", offer_passes},
    {"MODEL@ALIAS", offer_aliases},
    {"VERSION", offer_versions},
    {"MODEL:VERSION", offer_model_versions},
    {"VERB", offer_verbs},
    {"STATE", offer_states},
    {"OP", offer_ops},
};

/* One word of a usage line: a kind, or a literal in small letters. Brackets and dots say how often it may be there. */
static void offer_word(line *l, const char *word, size_t length) {
    char plain[64];
    if (length && *word == '[') word++, length--;
    size_t shown = 0;
    while (shown < length && shown < sizeof plain - 1 && !strchr("[].", word[shown])) shown++;
    snprintf(plain, sizeof plain, "%.*s", (int)shown, word);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].word, plain) == 0) kinds[i].offer(l);
    }
    offer_list(l, plain);
    if (strspn(plain, "abcdefghijklmnopqrstuvwxyz0123456789") == strlen(plain)) offer(l, plain, NULL);
}

/* The word at `index` of each alternative of a usage line: "GRAPH|RUN", "MODEL:VERSION GRAPH", "FILE|DIGEST...". */
static void offer_argument(line *l, const char *usage, size_t index) {
    while (*usage) {
        size_t end = strcspn(usage, "|"), at = 0;
        for (size_t i = 0; i < index && at < end; i++) {
            size_t next = at + strcspn(usage + at, " |") + 1;
            bool is_last = next >= end;
            bool repeats = is_last && end >= 3 && memmem(usage + at, end - at, "...", 3);
            if (!repeats) at = next;
        }
        if (at < end) offer_word(l, usage + at, strcspn(usage + at, " |"));
        usage += end + (usage[end] == '|');
    }
}

static void offer_options(line *l) {
    const fb_option *table = l->cli.verb ? l->cli.verb->options : fb_leading_options;
    char name[64];
    for (const fb_option *one = table; one->name; one++) {
        snprintf(name, sizeof name, "--%s", one->name);
        offer(l, name, one->help);
    }
}

/* Keeps the beginning of `l->current` up to here as it is. */
static void keep_head(line *l, const char *until) {
    l->head = l->current;
    l->head_length = (int)(until - l->current);
    l->current = until;
}

static void complete_value(line *l, const fb_option *option) {
    char usage[64];
    bool is_list = option->kind == FB_OPTION_NAMES;
    const char *comma = is_list ? strrchr(l->current, ',') : NULL;
    const char *start = l->head_length ? l->head : l->current; /* "--pass=A,B" has both */
    if (comma) l->current = start, keep_head(l, comma + 1);
    snprintf(usage, sizeof usage, "%.*s", (int)strcspn(option->argument, is_list ? "," : ""), option->argument);
    offer_argument(l, usage, 0);
}

static void complete(line *l) {
    const fb_option *table = l->cli.verb ? l->cli.verb->options : fb_leading_options;
    const char *value = NULL;
    const fb_option *option = l->option;
    if (!option && begins(l->current, "--")) option = fb_option_find(table, l->current, &value); /* --pass=Merge */
    if (value) keep_head(l, value);
    if (l->option || value) complete_value(l, option);
    else if (*l->current == '-') offer_options(l);
    else if (l->cli.verb) offer_argument(l, l->cli.verb->arguments, l->cli.arguments.count);
    else offer_verbs(l);
}

static int complete_line(const fb_verb *verb, int argc, char **argv) {
    (void)verb;
    line l = {.head = "", .cli = {.is_json = true, .values.patience_ms = PATIENCE_MS}};
    if (!freopen("/dev/null", "we", stderr)) return FB_EXIT_FAILED; /* a prompt is not a place for errors */
    l.cli.arguments.items = calloc((size_t)argc + 1, sizeof *l.cli.arguments.items);
    if (!l.cli.arguments.items) return FB_EXIT_FAILED;
    read_line(&l, argc, argv);
    const fb_verb *known = l.cli.verb;
    if (!known) l.cli.verb = verb; /* for its place */
    if (!fb_cli_find_place(&l.cli)) {
        l.cli.verb = known;
        complete(&l);
    }
    fb_client_free(l.cli.client);
    free(l.cli.arguments.items);
    return FB_EXIT_DONE;
}

/* ---- the verbs --------------------------------------------------------------------------------------------------------- */

const fb_verb fb_completion_verbs[] = {
    {.name = "completion",
     .arguments = "bash|zsh|fish",
     .summary = "prints a completion script for a shell",
     .description =
         "bash: eval \"$(foldback completion bash)\" in ~/.bashrc. zsh: the same in ~/.zshrc, after compinit. fish:\n"
         "foldback completion fish >~/.config/fish/completions/foldback.fish. make install does it for all users.\n",
     .options = fb_help_options,
     .folder = FB_FOLDER_UNUSED,
     .run = print_completion},
    {.name = "complete", .now = "completion", .arguments = "", .options = fb_help_options, .start = complete_line},
    {0},
};

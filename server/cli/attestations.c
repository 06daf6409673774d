/* foldback key create, key show, attestation and verify-attestation. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/json/json.h"
#include "server/cli/cli.h"
#include "server/cli/options.h"
#include "server/provenance/provenance.h"
#include "server/store/blobs.h"

/* ---- keys ---------------------------------------------------------------------------------------------------------------- */

int fb_signing_key_load(const char *path, bool is_private, fb_signing_key **out) {
    fb_buffer pem = {0};
    fb_error error = {0};
    struct stat about;
    if (is_private && !stat(path, &about) && S_ISREG(about.st_mode) && about.st_mode & 077)
        return fb_complain(FB_EXIT_FAILED, "%s can be read by others: chmod 600 %s", path, path);
    int result = fb_file_read(path, &pem);
    if (result) return result;
    fb_signing_key *key;
    fb_status status = fb_signing_key_read(&pem, &key, &error);
    if (pem.data) explicit_bzero(pem.data, pem.size);
    fb_buffer_free(&pem);
    if (status) return fb_complain(FB_EXIT_FAILED, "%s: %s", path, error.message);
    if (is_private && !fb_signing_key_is_private(key)) {
        fb_signing_key_free(key);
        return fb_complain(FB_EXIT_FAILED, "%s is a public key: to sign, give the private one", path);
    }
    *out = key;
    return FB_EXIT_DONE;
}

/* A new file; one that is there stays as it is. */
static int write_new(const char *path, mode_t mode, const fb_buffer *bytes) {
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (file < 0 && errno == EEXIST)
        return fb_complain(FB_EXIT_FAILED, "%s exists; what it has signed would not be verified any more, so name a new file",
                           path);
    bool ok = file >= 0 && write(file, bytes->data, bytes->size) == (ssize_t)bytes->size && !fsync(file);
    int failure = errno;
    if (file >= 0 && close(file)) ok = false;
    if (!ok && file >= 0) unlink(path);
    return ok ? FB_EXIT_DONE : fb_complain(FB_EXIT_FAILED, "cannot write %s: %s", path, strerror(failure));
}

static int print_key(fb_cli *cli, const fb_signing_key *key, const char *private, const char *public) {
    fb_buffer pem = {0};
    if (!fb_signing_key_write_public(key, &pem)) {
        fb_buffer_free(&pem);
        return fb_cli_no_memory();
    }
    if (cli->is_json) {
        fb_buffer out = {0};
        fb_buffer_char(&out, '{');
        fb_put_text(&out, "id", fb_signing_key_id(key));
        fb_put_text(&out, "public_key", fb_buffer_text(&pem));
        fb_buffer_char(&out, '}');
        puts(fb_buffer_text(&out) ? fb_buffer_text(&out) : "");
        fb_buffer_free(&out);
    } else {
        fb_print_facts(cli, (const fb_fact[]){{"key", fb_signing_key_id(key)}, {"private", private}, {"public", public}, {0}});
        if (!private) printf("\n%s", fb_buffer_text(&pem));
    }
    fb_buffer_free(&pem);
    return FB_EXIT_DONE;
}

static int create_key(fb_cli *cli) {
    const char *path = cli->arguments.items[0];
    fb_error error = {0};
    fb_signing_key *key;
    fb_buffer secret = {0}, public = {0}, name = {0};
    if (fb_signing_key_make(&key, &error)) return fb_cli_error(&error);
    fb_buffer_printf(&name, "%s.pub", path);
    int result =
        fb_signing_key_write_private(key, &secret) && fb_signing_key_write_public(key, &public) && fb_buffer_text(&name)
            ? FB_EXIT_DONE
            : fb_cli_no_memory();
    if (!result) result = write_new(path, 0600, &secret);
    if (!result && (result = write_new(fb_buffer_text(&name), 0644, &public))) unlink(path);
    if (!result) result = print_key(cli, key, path, fb_buffer_text(&name));
    if (secret.data) explicit_bzero(secret.data, secret.size);
    fb_buffer_free(&secret);
    fb_buffer_free(&public);
    fb_buffer_free(&name);
    fb_signing_key_free(key);
    return result;
}

static int show_key(fb_cli *cli) {
    fb_signing_key *key;
    int result = fb_signing_key_load(cli->arguments.items[0], false, &key);
    if (result) return result;
    result = print_key(cli, key, NULL, NULL);
    fb_signing_key_free(key);
    return result;
}

/* ---- attestation --------------------------------------------------------------------------------------------------------- */

static int write_attestation(fb_cli *cli) {
    fb_call call = {.method = "GET"};
    fb_answer answer;
    fb_address_path(&call.address, "/v1/runs");
    fb_address_segment(&call.address, cli->arguments.items[0]);
    fb_address_path(&call.address, "/attestation");
    int result = fb_cli_call(cli, &call, &answer);
    if (result) return result;
    fb_buffer_char(&answer.body, '\n');
    result = fb_file_write(cli->values.output ? cli->values.output : "-", answer.body.data, answer.body.size);
    fb_answer_free(&answer);
    return result;
}

/* ---- verify-attestation -------------------------------------------------------------------------------------------------- */

/* The claims of a statement, borrowed from it; NULL where it has none. */
typedef struct claim {
    json_t *statement;
    const char *run, *kind, *version; /* `version`: of the foldback that made it */
    const char *source, *replay_source;
    const json_t *subject, *dependencies, *passes; /* `passes`: with which it is made again */
    const json_t *named;                           /* the run's own passes */
} claim;

static int refuse(const char *what) {
    return fb_complain(FB_EXIT_FAILED, "the attestation is not true: %s", what);
}

/* The SHA-256 of the first of a list that has that name, in hex. */
static const char *digest_of(const json_t *list, const char *name) {
    const json_t *first = json_array_get(list, 0);
    const char *called = json_string_value(json_object_get(first, "name"));
    return called && !strcmp(called, name) ? json_string_value(json_object_get(json_object_get(first, "digest"), "sha256"))
                                           : NULL;
}

static bool is_id(const char *id, const char *hex) {
    return id && hex && !strncmp(id, "sha256:", strlen("sha256:")) && !strcmp(id + strlen("sha256:"), hex);
}

static int read_claim(const fb_buffer *payload, claim *out) {
    json_error_t failure;
    *out = (claim){.statement = fb_load_json_bytes(payload->data, payload->size, JSON_REJECT_DUPLICATES, &failure)};
    const json_t *predicate = json_object_get(out->statement, "predicate"),
                 *definition = json_object_get(predicate, "buildDefinition"),
                 *parameters = json_object_get(definition, "externalParameters"),
                 *details = json_object_get(predicate, "runDetails"), *replay = json_object_get(parameters, "replay");
    const struct {
        const json_t *in;
        const char *name, *is;
    } types[] = {{out->statement, "_type", "https://in-toto.io/Statement/v1"},
                 {out->statement, "predicateType", "https://slsa.dev/provenance/v1"},
                 {definition, "buildType", FB_BUILD_TYPE}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(fb_text_of(types[i].in, types[i].name), types[i].is) != 0)
            return fb_complain(FB_EXIT_FAILED, "it is not an attestation of foldback: %s is not %s", types[i].name,
                               types[i].is);
    out->subject = json_object_get(out->statement, "subject");
    out->dependencies = json_object_get(definition, "resolvedDependencies");
    out->run = fb_text_of(json_object_get(details, "metadata"), "invocationId");
    out->version = fb_text_of(json_object_get(json_object_get(details, "builder"), "version"), "foldback");
    out->kind = fb_text_of(parameters, "kind");
    out->source = digest_of(out->dependencies, "source");
    out->replay_source = json_string_value(json_object_get(replay, "source"));
    out->passes = json_object_get(replay, "passes");
    out->named = json_object_get(parameters, "passes");
    if (!digest_of(out->subject, "result") || !out->source)
        return fb_complain(FB_EXIT_FAILED, "it is not an attestation of foldback: it does not name the result or the source");
    if (json_is_null(replay))
        return fb_complain(FB_EXIT_FAILED,
                           "the signature is good, but run %s is %s: what it made cannot be made again from the source alone",
                           out->run, strcmp(out->kind, "external") == 0 ? "external" : "an undo merged into an edited graph");
    if (!json_is_array(out->passes) || !is_id(out->replay_source, out->source))
        return refuse("its passes do not start from its source");
    return FB_EXIT_DONE;
}

/* The files that a graph's tensors are in are those that the statement lists after the graph. */
static int check_files(const fb_graph *graph, const json_t *list) {
    const char **blobs = NULL;
    size_t count = 0, listed = 0;
    fb_error error = {0};
    if (fb_list_blobs(graph, &blobs, &count, &error)) return fb_cli_error(&error);
    int result = FB_EXIT_DONE;
    for (size_t i = 1; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        if (strcmp(fb_text_of(one, "name"), "file") != 0) continue;
        if (listed == count || !is_id(blobs[listed], fb_text_of(json_object_get(one, "digest"), "sha256")))
            result = refuse("a file that it lists is not one of the graph's");
        if (result) break;
        listed++;
    }
    free(blobs);
    return !result && listed != count ? refuse("it does not list all files of the graph") : result;
}

/* Passes as a request takes them: of the version that this foldback has. */
static bool put_passes(const json_t *passes, fb_buffer *out) {
    size_t i;
    const json_t *pass;
    fb_put_name(out, "passes");
    fb_buffer_char(out, '[');
    json_array_foreach(passes, i, pass) {
        fb_put_comma(out);
        fb_buffer_char(out, '{');
        fb_put_text(out, "name", fb_text_of(pass, "name"));
        fb_put_json(out, "params", json_object_get(pass, "params"));
        fb_buffer_char(out, '}');
    }
    fb_buffer_char(out, ']');
    return !out->failed;
}

/* The passes that were asked for and those that were run again have the same signatures: of name, version and parameters. */
static int check_signatures(const claim *said, const json_t *made) {
    if (strcmp(said->kind, "optimize") != 0) return FB_EXIT_DONE; /* an undo names the passes that are gone */
    bool are_same = json_array_size(said->named) == json_array_size(made);
    for (size_t i = 0; are_same && i < json_array_size(made); i++)
        are_same = strcmp(fb_text_of(json_array_get(said->named, i), "signature"),
                          fb_text_of(json_array_get(made, i), "signature")) == 0;
    return are_same ? FB_EXIT_DONE : refuse("it names other passes than it has run");
}

static int check_versions(const claim *said, const json_t *run) {
    const json_t *made = json_object_get(run, "passes");
    size_t i;
    const json_t *pass;
    if (json_array_size(made) != json_array_size(said->passes)) return refuse("it names other passes than it has run");
    json_array_foreach(said->passes, i, pass) {
        const json_t *here = json_array_get(made, i);
        json_int_t wanted = json_integer_value(json_object_get(pass, "version")),
                   have = json_integer_value(json_object_get(here, "version"));
        if (strcmp(fb_text_of(pass, "name"), fb_text_of(here, "name")) != 0)
            return refuse("it names other passes than it has run");
        if (wanted != have)
            return fb_complain(FB_EXIT_FAILED, "%s is version %lld here and was %lld: verify this attestation with foldback %s",
                               fb_text_of(pass, "name"), (long long)have, (long long)wanted, said->version);
    }
    return check_signatures(said, made);
}

static int check_result(const claim *said, const json_t *run) {
    char *text = fb_dump_json(json_object_get(run, "graph"), JSON_COMPACT);
    if (!text) return fb_cli_no_memory();
    fb_graph *graph = NULL;
    fb_errors errors = {0};
    fb_buffer bytes = {.data = text, .size = strlen(text)};
    fb_status status = fb_read_any_document(&bytes, &graph, &errors);
    fb_errors_free(&errors);
    free(text);
    if (status) return fb_complain(FB_EXIT_FAILED, "the result cannot be read");
    int result = check_files(graph, said->subject);
    fb_graph_free(graph);
    return result;
}

/* Makes the result again, and stores nothing. */
static int replay(fb_cli *cli, const claim *said, const fb_reference *source) {
    fb_call call = {.method = "POST"};
    json_t *run;
    fb_address_path(&call.address, "/v1/optimize");
    fb_request_begin(&call.body);
    int result = fb_request_graph(cli, &call.body, "graph", source);
    if (!result && !put_passes(said->passes, &call.body)) result = fb_cli_no_memory();
    if (!result) {
        fb_put_name(&call.body, "options");
        fb_buffer_string(&call.body, "{\"dry_run\":true,\"include\":[\"graph\"]}");
        result = fb_request_end(&call.body);
    }
    if (result) {
        fb_call_free(&call);
        return result;
    }
    result = fb_cli_call_json(cli, &call, &run, NULL);
    if (result) return result;
    result = check_versions(said, run);
    if (!result && !is_id(fb_text_of(run, "result"), digest_of(said->subject, "result")))
        result = refuse("the passes make another graph of its source");
    if (!result) result = check_result(said, run);
    json_decref(run);
    return result;
}

static int check_claim(fb_cli *cli, const claim *said) {
    const char *given = cli->values.source;
    fb_reference source = given ? fb_reference_read(given) : fb_reference_read_stored(said->replay_source);
    fb_graph *graph;
    char id[FB_ID_LENGTH + 1];
    if (!fb_reference_needs_store(&source)) cli->folder = FB_FOLDER_UNUSED;
    int result = fb_reference_graph(cli, &source, &graph);
    if (result) return result;
    if (!fb_document_id(graph, id)) result = fb_cli_no_memory();
    else if (!is_id(id, said->source)) result = fb_complain(FB_EXIT_FAILED, "%s is not the source that it names", source.text);
    if (!result) result = check_files(graph, said->dependencies);
    if (!result && !json_array_size(said->passes)) { /* everything was undone */
        if (!is_id(id, digest_of(said->subject, "result")))
            result = refuse("no pass was run, and its result is not its source");
        else result = check_files(graph, said->subject);
    } else if (!result) {
        result = replay(cli, said, &source);
    }
    fb_graph_free(graph);
    return result;
}

static int print_verified(fb_cli *cli, const claim *said, const char *key) {
    fb_buffer out = {0};
    if (!cli->is_json) {
        fb_print_facts(cli, (const fb_fact[]){{"run", said->run},
                                              {"signed by", key},
                                              {"source", said->source},
                                              {"result", digest_of(said->subject, "result")},
                                              {"verified", "signature, source, passes, result"},
                                              {0}});
        return FB_EXIT_DONE;
    }
    fb_buffer_char(&out, '{');
    fb_put_bool(&out, "verified", true);
    fb_put_text(&out, "key", key);
    fb_put_json(&out, "statement", said->statement);
    fb_buffer_char(&out, '}');
    const char *text = fb_buffer_text(&out);
    if (text) puts(text);
    fb_buffer_free(&out);
    return text ? FB_EXIT_DONE : fb_cli_no_memory();
}

static int verify(fb_cli *cli, fb_signing_key *const *keys, size_t count) {
    fb_buffer envelope = {0}, payload = {0};
    fb_error error = {0};
    size_t signer = 0;
    claim said = {0};
    int result = fb_file_read(cli->arguments.items[0], &envelope);
    if (result) return result;
    if (fb_envelope_open(envelope.data, envelope.size, keys, count, &payload, &signer, &error))
        result = fb_complain(FB_EXIT_FAILED, "%s: %s", cli->arguments.items[0], error.message);
    if (!result) result = read_claim(&payload, &said);
    if (!result) result = check_claim(cli, &said);
    if (!result) result = print_verified(cli, &said, fb_signing_key_id(keys[signer]));
    json_decref(said.statement);
    fb_buffer_free(&envelope);
    fb_buffer_free(&payload);
    return result;
}

static int verify_attestation(fb_cli *cli) {
    const fb_text_list *names = &cli->values.keys;
    if (!names->count) return fb_complain(FB_EXIT_USAGE, "verify-attestation needs the signer's public key: --key FILE");
    fb_signing_key **keys = calloc(names->count, sizeof *keys);
    if (!keys) return fb_cli_no_memory();
    int result = FB_EXIT_DONE;
    for (size_t i = 0; i < names->count && !result; i++) result = fb_signing_key_load(names->items[i], false, &keys[i]);
    if (!result) result = verify(cli, keys, names->count);
    for (size_t i = 0; i < names->count; i++) fb_signing_key_free(keys[i]);
    free(keys);
    return result;
}

/* ---- the verbs --------------------------------------------------------------------------------------------------------- */

static const fb_option key_options[] = {JSON, END};

static const fb_option attestation_options[] = {TEXT("output", 'o', "FILE", "write it there; - is standard output", output),
                                                STORE, END};

static const fb_option verify_attestation_options[] = {
    LIST("key", 0, "FILE", "the public key of who may have signed it; may be repeated", keys),
    TEXT("source", 0, "GRAPH", "the graph that it starts from, as a file; else it is taken from the store", source),
    STORE,
    JSON,
    END,
};

const fb_verb fb_attestation_verbs[] = {
    {.name = "key create",
     .arguments = "FILE",
     .summary = "makes a key of ed25519 that signs attestations: FILE, and FILE.pub",
     .description = "For serve --signing-key FILE. Give FILE.pub to those who verify, and keep FILE.\n",
     .options = key_options,
     .folder = FB_FOLDER_UNUSED,
     .run = create_key},
    {.name = "key show",
     .arguments = "FILE",
     .summary = "shows a key's id and its public part",
     .options = key_options,
     .folder = FB_FOLDER_UNUSED,
     .run = show_key},
    {.name = "attestation",
     .arguments = "RUN",
     .summary = "writes how a run's result was made, signed by the service",
     .description = "A DSSE envelope with an in-toto statement. The service was started with --signing-key.\n",
     .options = attestation_options,
     .run = write_attestation},
    {.name = "verify-attestation",
     .arguments = "FILE",
     .summary = "checks who signed an attestation, and makes the result again",
     .description =
         "Exit status 0 when one of the keys has signed it, the passes lead from the source to the result, and both\n"
         "have the files that it lists. Nothing is stored.\n",
     .options = verify_attestation_options,
     .run = verify_attestation},
    {0},
};

#include "core/graph/code.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/map.h"
#include "core/graph/code_writer.h"
#include "core/graph/python.h"

#define INDENT "    "

/* One program being written. The writer's output is `body`, but for parameters and the type of the result. */
typedef struct program_writer {
    fb_code_writer writer;
    fb_work *work;
    fb_buffer wraps, parameters, body, result_type;
    fb_map wrapped;       /* symbols of the wrapped functions that are listed in `wraps` */
    fb_node *freed_after; /* by node: its last reader */
} program_writer;

static void write_type(fb_code_writer *writer, const char *before, fb_symbol type) {
    const char *text = fb_code_type(writer, type);
    if (!text) return;
    fb_buffer_string(writer->out, before);
    fb_buffer_string(writer->out, text);
}

/* `name : type = ` */
static void write_result(fb_code_writer *writer, fb_node node, const fb_node_row *row) {
    fb_buffer_string(writer->out, fb_code_node_name(writer, node));
    write_type(writer, " : ", row->type);
    fb_buffer_string(writer->out, " = ");
}

/* The name of the parameter behind its stars; NULL when it is none. */
static const char *parameter_name(const char *target) {
    size_t stars = strspn(target, "*");
    size_t length = strlen(target + stars);
    bool is_name = stars <= 2 && fb_python_is_identifier(target + stars, length) &&
                   fb_python_word(target + stars, length) != FB_WORD_KEYWORD;
    return is_name ? target + stars : NULL;
}

static void write_placeholder(program_writer *program, fb_node node, const fb_node_row *row) {
    fb_code_writer *writer = &program->writer;
    const char *target = fb_text(writer->graph, row->target);
    const char *parameter = parameter_name(target);
    const fb_value_row *args = fb_value_at(writer->graph, row->args);
    writer->out = &program->parameters;
    if (program->parameters.size) fb_buffer_string(writer->out, ", ");
    fb_buffer_string(writer->out, parameter ? target : fb_code_node_name(writer, node));
    write_type(writer, " : ", row->type);
    if (args->count) {
        fb_buffer_string(writer->out, " = ");
        fb_code_value(writer, args->items[0]);
    }
    writer->out = &program->body;
    const char *name = fb_code_node_name(writer, node);
    if (parameter && strcmp(parameter, name) != 0) {
        fb_buffer_string(writer->out, INDENT);
        fb_buffer_string(writer->out, name);
        fb_buffer_string(writer->out, " = ");
        fb_buffer_string(writer->out, parameter);
        fb_buffer_char(writer->out, '\n');
    }
}

/* torch.fx leaves out arguments beyond the operands, but has given their names away by then; so does this. */
static void write_operator(fb_code_writer *writer, const char *format, const fb_value_row *args) {
    size_t next = 0;
    for (const char *c = format; *c; c++) {
        if (*c == '$') fb_code_value(writer, args->items[next++]);
        else fb_buffer_char(writer->out, *c);
    }
    size_t end = writer->out->size;
    while (next < args->count) fb_code_value(writer, args->items[next++]);
    writer->out->size = end;
}

static size_t operand_count(const char *format) {
    size_t count = 0;
    for (const char *c = format; *c; c++) count += *c == '$';
    return count;
}

static void list_wrapped(program_writer *program, const fb_node_row *row, const char *global) {
    const fb_graph *graph = program->writer.graph;
    const char *is_wrapped = fb_value_text(graph, fb_map_value(graph, row->meta_rest, "is_wrapped"));
    if (!is_wrapped || strcmp(is_wrapped, "true") != 0 || fb_map_get(&program->wrapped, row->target.id)) return;
    if (!fb_map_put(&program->wrapped, row->target.id, 1)) program->writer.failed = true;
    if (program->wraps.size) fb_buffer_char(&program->wraps, '\n');
    fb_buffer_string(&program->wraps, "torch.fx._symbolic_trace.wrap(\"");
    fb_buffer_string(&program->wraps, global);
    fb_buffer_string(&program->wraps, "\")");
}

static void write_function(program_writer *program, fb_node node, const fb_node_row *row) {
    fb_code_writer *writer = &program->writer;
    const char *target = fb_text(writer->graph, row->target);
    const fb_value_row *args = fb_value_at(writer->graph, row->args);
    const fb_code_operator *printed = fb_code_find_operator(target);
    if (printed && args->count >= operand_count(printed->format)) {
        if (!printed->is_statement) write_result(writer, node, row);
        write_operator(writer, printed->format, args);
        if (!printed->is_statement) return;
        fb_buffer_string(writer->out, ";  ");
        write_result(writer, node, row);
        fb_code_value(writer, args->items[0]);
        return;
    }
    const char *global = fb_code_global(writer, row->target, target); /* gets its name before the node does */
    write_result(writer, node, row);
    if (strcmp(global, "getattr") == 0 && args->count == 2 && fb_value_kind(writer->graph, args->items[1]) == FB_STRING) {
        const char *attribute = fb_value_text(writer->graph, args->items[1]);
        if (fb_python_is_identifier(attribute, strlen(attribute))) {
            fb_code_path(writer, args->items[0], attribute, strlen(attribute));
            return;
        }
    }
    fb_buffer_string(writer->out, global);
    fb_buffer_char(writer->out, '(');
    fb_code_arguments(writer, row, 0);
    fb_buffer_char(writer->out, ')');
    list_wrapped(program, row, global);
}

static void write_call(fb_code_writer *writer, const fb_node_row *row, fb_value self, size_t from) {
    fb_code_path(writer, self, fb_text(writer->graph, row->target), fb_text_length(writer->graph, row->target));
    fb_buffer_char(writer->out, '(');
    fb_code_arguments(writer, row, from);
    fb_buffer_char(writer->out, ')');
}

static void write_statement(program_writer *program, fb_node node, const fb_node_row *row) {
    fb_code_writer *writer = &program->writer;
    fb_value first = fb_node_arg(writer->graph, node, 0);
    switch ((fb_opcode)row->opcode) {
    case FB_CALL_FUNCTION: write_function(program, node, row); break;
    case FB_CALL_METHOD:
        write_result(writer, node, row);
        write_call(writer, row, first, 1);
        break;
    case FB_CALL_MODULE:
        write_result(writer, node, row);
        write_call(writer, row, (fb_value){0}, 0);
        break;
    case FB_GET_ATTR:
        write_result(writer, node, row);
        fb_code_path(writer, (fb_value){0}, fb_text(writer->graph, row->target), fb_text_length(writer->graph, row->target));
        break;
    case FB_OUTPUT:
        writer->out = &program->result_type;
        write_type(writer, " -> ", row->type);
        writer->out = &program->body;
        fb_buffer_string(writer->out, "return ");
        fb_code_value(writer, first);
        break;
    case FB_PLACEHOLDER: break; /* write_placeholder */
    }
}

/* Frees what nothing reads from here on: `;  a = b = None`. */
static void write_frees(program_writer *program, fb_node node, const fb_node_row *row) {
    fb_code_writer *writer = &program->writer;
    const char *separator = ";  ";
    for (uint32_t edge = fb_input_first(writer->graph, node); edge; edge = fb_input_next(writer->graph, edge)) {
        fb_node input = fb_edge_input(writer->graph, edge);
        if (program->freed_after[input.id].id != node.id) continue;
        fb_buffer_string(writer->out, separator);
        fb_buffer_string(writer->out, fb_code_node_name(writer, input));
        separator = " = ";
    }
    if (row->user_count == 0) {
        fb_buffer_string(writer->out, separator);
        fb_buffer_string(writer->out, fb_code_node_name(writer, node));
        separator = " = ";
    }
    if (separator[0] == ' ') fb_buffer_string(writer->out, " = None");
}

static void find_last_readers(program_writer *program, fb_program which) {
    const fb_graph *graph = program->writer.graph;
    for (fb_node node = fb_last_node(graph, which); node.id && fb_work_goes_on(program->work, 4);
         node = fb_node_at(graph, node)->previous) {
        for (uint32_t edge = fb_input_first(graph, node); edge; edge = fb_input_next(graph, edge)) {
            fb_node *reader = &program->freed_after[fb_edge_input(graph, edge).id];
            if (!reader->id) *reader = node;
        }
    }
}

static void write_body(program_writer *program, fb_program which) {
    fb_code_writer *writer = &program->writer;
    fb_node node = fb_first_node(writer->graph, which);
    if (!node.id) fb_buffer_string(writer->out, INDENT "pass\n");
    while (node.id) {
        if (!fb_work_goes_on(program->work, 32)) { /* a microsecond or two a node */
            writer->failed = true;
            return;
        }
        const fb_node_row *row = fb_node_at(writer->graph, node);
        fb_code_type(writer, row->type); /* torch.fx names the classes in a type before anything else of the node */
        if (row->opcode == FB_PLACEHOLDER) {
            write_placeholder(program, node, row);
        } else {
            fb_buffer_string(writer->out, INDENT);
            write_statement(program, node, row);
            if (row->opcode != FB_OUTPUT) write_frees(program, node, row);
            fb_buffer_char(writer->out, '\n');
        }
        node = row->next;
    }
}

/* A first parameter that is called self is the one that Python passes. */
static bool has_self(const fb_buffer *parameters) {
    static const char self[] = "self";
    if (parameters->size < 4 || memcmp(parameters->data, self, 4) != 0) return false;
    return parameters->size == 4 || parameters->data[4] == ',';
}

static void join(const program_writer *program, fb_buffer *out) {
    fb_buffer_char(out, '\n');
    fb_buffer_append(out, program->wraps.data, program->wraps.size);
    fb_buffer_string(out, "\n\ndef forward(");
    if (!has_self(&program->parameters)) fb_buffer_string(out, program->parameters.size ? "self, " : "self");
    fb_buffer_append(out, program->parameters.data, program->parameters.size);
    fb_buffer_char(out, ')');
    fb_buffer_append(out, program->result_type.data, program->result_type.size);
    fb_buffer_string(out, ":\n");
    fb_buffer_append(out, program->body.data, program->body.size);
    fb_buffer_string(out, INDENT);
    if (program->wraps.failed || program->parameters.failed || program->body.failed || program->result_type.failed) {
        out->failed = true;
    }
}

static bool write_program(const fb_graph *graph, fb_program which, fb_work *work, fb_buffer *out) {
    program_writer program = {
        .work = work,
        .freed_after = calloc((size_t)fb_node_limit(graph) + 1, sizeof(fb_node)),
    };
    program.writer.out = &program.body;
    if (fb_code_writer_init(&program.writer, graph) && program.freed_after) {
        find_last_readers(&program, which);
        write_body(&program, which);
        join(&program, out);
    } else {
        program.writer.failed = true;
    }
    if (program.writer.failed) out->failed = true;
    fb_code_writer_free(&program.writer);
    free(program.freed_after);
    fb_map_free(&program.wrapped);
    fb_buffer_free(&program.wraps);
    fb_buffer_free(&program.parameters);
    fb_buffer_free(&program.body);
    fb_buffer_free(&program.result_type);
    return !out->failed;
}

bool fb_code_write_program(const fb_graph *graph, fb_program which, fb_buffer *out) {
    return write_program(graph, which, &(fb_work){0}, out);
}

bool fb_code_write_metered(const fb_graph *graph, fb_work *work, fb_buffer *out) {
    return write_program(graph, FB_MAIN_PROGRAM, work, out);
}

bool fb_code_write(const fb_graph *graph, fb_buffer *out) {
    return fb_code_write_program(graph, FB_MAIN_PROGRAM, out);
}

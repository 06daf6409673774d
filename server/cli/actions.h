/* What the verbs do: the `run` of each. */
#ifndef FB_CLI_ACTIONS_H
#define FB_CLI_ACTIONS_H

#include "server/cli/cli.h"

int fb_cli_id(fb_cli *cli), fb_cli_verify(fb_cli *cli), fb_cli_code(fb_cli *cli); /* graph.c */
int fb_cli_evaluate(fb_cli *cli), fb_cli_compare(fb_cli *cli);                    /* evaluate.c */
int fb_cli_diff(fb_cli *cli);                                                     /* diff.c */

int fb_cli_optimize(fb_cli *cli), fb_cli_reverse(fb_cli *cli), fb_cli_rollback(fb_cli *cli); /* run.c */
int fb_cli_record(fb_cli *cli);                                                              /* record.c */

int fb_cli_pass_list(fb_cli *cli), fb_cli_pass_show(fb_cli *cli), fb_cli_passes(fb_cli *cli); /* lists.c */
int fb_cli_graphs(fb_cli *cli), fb_cli_runs(fb_cli *cli), fb_cli_nodes(fb_cli *cli);
int fb_cli_show(fb_cli *cli);                                                        /* show.c */
int fb_cli_transformation_put(fb_cli *cli), fb_cli_transformation_list(fb_cli *cli); /* transformations.c */
int fb_cli_transformation_show(fb_cli *cli);

int fb_cli_model_list(fb_cli *cli), fb_cli_model_show(fb_cli *cli), fb_cli_models(fb_cli *cli); /* models.c */
int fb_cli_register(fb_cli *cli), fb_cli_delete(fb_cli *cli);
int fb_cli_deploy(fb_cli *cli), fb_cli_history(fb_cli *cli);                               /* deploy.c */
int fb_cli_weights(fb_cli *cli), fb_cli_bind(fb_cli *cli);                                 /* weights.c */
int fb_cli_upload(fb_cli *cli), fb_cli_download(fb_cli *cli), fb_cli_missing(fb_cli *cli); /* blobs.c */
int fb_cli_blobs(fb_cli *cli), fb_cli_gc(fb_cli *cli);

int fb_cli_completion(fb_cli *cli);                                                              /* completion.c */
int fb_complete(const fb_verb *verb, int argc, char **argv);                                     /* its `start` */
int fb_cli_help(fb_cli *cli);                                                                    /* verb.c */
int fb_cli_db_check(fb_cli *cli), fb_cli_db_backup(fb_cli *cli), fb_cli_db_restore(fb_cli *cli); /* db.c */
int fb_cli_job_list(fb_cli *cli), fb_cli_job_show(fb_cli *cli), fb_cli_job_wait(fb_cli *cli);    /* jobs.c */
int fb_cli_job_result(fb_cli *cli), fb_cli_job_cancel(fb_cli *cli);
int fb_cli_ready(fb_cli *cli);                                                                          /* ready.c */
int fb_cli_token_create(fb_cli *cli), fb_cli_token_list(fb_cli *cli), fb_cli_token_revoke(fb_cli *cli); /* access.c */
int fb_cli_audit(fb_cli *cli);
int fb_cli_events(fb_cli *cli); /* events.c */

#endif

/* libpq, for stores in PostgreSQL. */
#ifndef FB_LIBRARIES_PQ_H
#define FB_LIBRARIES_PQ_H

#include <postgresql/libpq-fe.h>

#include "core/base/error.h"

#define FB_PQ_FUNCTIONS(each)                                                                                                  \
    each(PQbackendPID) each(PQclear) each(PQcmdStatus) each(PQcmdTuples) each(PQconnectdbParams) each(PQconninfoFree)          \
        each(PQconninfoParse) each(PQenterPipelineMode) each(PQerrorMessage) each(PQexec) each(PQexecPrepared)                 \
            each(PQexitPipelineMode) each(PQfinish) each(PQfreemem) each(PQgetResult) each(PQgetisnull) each(PQgetlength)      \
                each(PQgetvalue) each(PQlibVersion) each(PQntuples) each(PQpipelineSync) each(PQprepare)                       \
                    each(PQresultErrorField) each(PQresultStatus) each(PQsendPrepare) each(PQsendQuery)                        \
                        each(PQsendQueryParams) each(PQsendQueryPrepared) each(PQserverVersion) each(PQsetNoticeReceiver)      \
                            each(PQstatus) each(PQtransactionStatus)

/* libpq's functions: to call after fb_pq_load. */
typedef struct fb_pq_functions {
#define FB_EACH(name) __typeof__(name) *name;
    FB_PQ_FUNCTIONS(FB_EACH)
#undef FB_EACH
} fb_pq_functions;
extern fb_pq_functions fb_pq;

/* Loads it; does nothing afterwards. For any thread. FB_IO "library-missing", FB_NO_MEMORY. */
fb_status fb_pq_load(fb_error *error);

#endif

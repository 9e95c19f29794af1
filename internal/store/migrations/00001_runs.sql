-- +goose Up
CREATE TABLE runs (
    id                 TEXT PRIMARY KEY NOT NULL,
    id_reversed        TEXT NOT NULL,
    namespace          TEXT NOT NULL,
    name               TEXT NOT NULL,
    agent              TEXT NOT NULL,
    harness            TEXT NOT NULL,
    source             TEXT NOT NULL,
    parent             TEXT NOT NULL,
    idempotency_key    TEXT NOT NULL,
    labels             TEXT NOT NULL,
    created_at         BIGINT NOT NULL,
    limits             TEXT NOT NULL,
    search             TEXT NOT NULL,
    model              TEXT NOT NULL,
    state              TEXT NOT NULL,
    reason             TEXT NOT NULL,
    attempt            INTEGER NOT NULL,
    exit_code          INTEGER,
    input_tokens       BIGINT NOT NULL,
    output_tokens      BIGINT NOT NULL,
    cache_read_tokens  BIGINT NOT NULL,
    cache_write_tokens BIGINT NOT NULL,
    cost_usd           DOUBLE PRECISION NOT NULL,
    cost_source        TEXT NOT NULL,
    turns              INTEGER NOT NULL,
    oom_kills          INTEGER NOT NULL,
    wait_reason        TEXT,
    wait_detail        TEXT,
    priority           INTEGER NOT NULL,
    started_at         BIGINT,
    ended_at           BIGINT,
    stop_requested_at  BIGINT,
    not_before         BIGINT,
    stop_reason        TEXT NOT NULL,
    result_blob        TEXT NOT NULL,
    version            BIGINT NOT NULL,
    queue_order        INTEGER NOT NULL, -- the priority turned round, so that the queue is read forwards
    message            TEXT NOT NULL,
    result             TEXT NOT NULL
);
CREATE INDEX runs_newest ON runs (namespace, created_at, id, search);
CREATE INDEX runs_by_state ON runs (namespace, state, created_at, id);
CREATE INDEX runs_by_agent ON runs (namespace, agent, state, created_at, id);
CREATE INDEX runs_by_name ON runs (namespace, name, created_at, id);
CREATE INDEX runs_by_id_end ON runs (id_reversed);
CREATE INDEX runs_ended ON runs (ended_at, id) WHERE ended_at IS NOT NULL;
CREATE INDEX runs_result_blob ON runs (result_blob) WHERE result_blob <> '';
CREATE INDEX runs_ready ON runs (namespace, source, agent, queue_order, id) WHERE state = 'queued' AND not_before IS NULL;
CREATE INDEX runs_delayed ON runs (not_before, id) WHERE state = 'queued' AND not_before IS NOT NULL;
CREATE INDEX runs_position ON runs (namespace, agent, queue_order, id) WHERE state = 'queued';

CREATE TABLE run_counts (
    namespace TEXT NOT NULL,
    state     TEXT NOT NULL,
    n         BIGINT NOT NULL,
    PRIMARY KEY (namespace, state)
);

CREATE TABLE run_labels (
    run_id     TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    key        TEXT NOT NULL,
    value      TEXT NOT NULL,
    namespace  TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (run_id, key)
);
CREATE INDEX run_labels_newest ON run_labels (namespace, key, value, created_at, run_id);

CREATE TABLE run_details (
    run_id      TEXT PRIMARY KEY NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    prompt_blob TEXT NOT NULL,
    prompt_size BIGINT NOT NULL,
    spec        BYTEA,
    request     BYTEA,
    prompt      BYTEA NOT NULL
);
CREATE INDEX run_details_blob ON run_details (prompt_blob) WHERE prompt_blob <> '';

CREATE TABLE attempts (
    run_id             TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    number             INTEGER NOT NULL,
    reason             TEXT NOT NULL,
    exit_code          INTEGER,
    signal             TEXT NOT NULL,
    input_tokens       BIGINT NOT NULL,
    output_tokens      BIGINT NOT NULL,
    cache_read_tokens  BIGINT NOT NULL,
    cache_write_tokens BIGINT NOT NULL,
    cost_usd           DOUBLE PRECISION NOT NULL,
    cost_source        TEXT NOT NULL,
    turns              INTEGER NOT NULL,
    oom_kills          INTEGER NOT NULL,
    backend            TEXT NOT NULL,
    process            TEXT NOT NULL,
    queued_at          BIGINT NOT NULL,
    admitted_at        BIGINT NOT NULL,
    started_at         BIGINT,
    first_at           BIGINT,
    ended_at           BIGINT,
    last_contact       BIGINT,
    journal            TEXT NOT NULL,
    last_cursor        BIGINT NOT NULL,
    final_cursor       BIGINT NOT NULL,
    epoch              BIGINT NOT NULL,
    key_hash           BYTEA,
    gone               BOOLEAN NOT NULL,
    message            TEXT NOT NULL,
    final              TEXT,
    stderr_tail        TEXT NOT NULL,
    output_tail        TEXT NOT NULL,
    PRIMARY KEY (run_id, number)
);
CREATE INDEX attempts_active ON attempts (run_id, number) WHERE NOT gone;

CREATE TABLE timeline (
    run_id  TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    seq     BIGINT NOT NULL,
    at      BIGINT NOT NULL,
    attempt INTEGER NOT NULL,
    kind    TEXT NOT NULL,
    message TEXT NOT NULL,
    data    BYTEA,
    PRIMARY KEY (run_id, seq)
);

CREATE TABLE artifacts (
    run_id  TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    attempt INTEGER NOT NULL,
    name    TEXT NOT NULL,
    size    BIGINT NOT NULL,
    digest  TEXT NOT NULL,
    at      BIGINT NOT NULL,
    PRIMARY KEY (run_id, attempt, name)
);
CREATE INDEX artifacts_digest ON artifacts (digest);

CREATE TABLE idempotency_keys (
    scope  TEXT NOT NULL,
    key    TEXT NOT NULL,
    digest TEXT NOT NULL,
    run_id TEXT NOT NULL,
    last   BYTEA,
    at     BIGINT NOT NULL,
    PRIMARY KEY (scope, key)
);
CREATE INDEX idempotency_keys_at ON idempotency_keys (at);

CREATE TABLE settings (
    name  TEXT PRIMARY KEY NOT NULL,
    value TEXT NOT NULL
);

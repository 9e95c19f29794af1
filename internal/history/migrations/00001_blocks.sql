-- +goose Up
CREATE TABLE blocks (
    journal TEXT NOT NULL,
    first   BIGINT NOT NULL,
    last    BIGINT NOT NULL,
    raw     BIGINT NOT NULL, -- bytes of the lines, with what joins them
    data    BYTEA NOT NULL,  -- the lines joined by newlines, zstd
    PRIMARY KEY (journal, first)
);

-- +goose Up
ALTER TABLE attempts ADD COLUMN owed BOOLEAN NOT NULL DEFAULT FALSE; -- History lacks events that its journal has
CREATE INDEX attempts_owed ON attempts (run_id, number) WHERE owed;

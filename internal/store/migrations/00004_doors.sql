-- +goose Up
-- api, cli and web share their keys. Where both had one, that of the command
-- line stays where nobody looks.
UPDATE idempotency_keys SET scope = replace(scope, '/cli', '/api')
WHERE scope LIKE '%/cli' AND NOT EXISTS (
    SELECT 1 FROM idempotency_keys taken
    WHERE taken.key = idempotency_keys.key AND taken.scope = replace(idempotency_keys.scope, '/cli', '/api'));

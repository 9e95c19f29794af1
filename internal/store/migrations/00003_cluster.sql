-- +goose Up
ALTER TABLE attempts ADD COLUMN object TEXT NOT NULL DEFAULT ''; -- what the backend has made for it: a Job's UID
ALTER TABLE attempts ADD COLUMN evidence TEXT; -- what a cluster said about it, JSON

-- Checkpoints contain the resolution of lost results.

-- +goose Up
ALTER TABLE checkpoints ADD COLUMN resolution TEXT NOT NULL DEFAULT ''; -- retry, accept or skip, '' for other kinds, and for those of earlier versions

-- +goose Down
ALTER TABLE checkpoints DROP COLUMN resolution;

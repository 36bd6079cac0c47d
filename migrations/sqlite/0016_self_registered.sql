-- Agents that registered themselves without proof of who they are have a mark. Before, their id and the
-- beginning of their description had this meaning.

-- +goose Up
ALTER TABLE agents ADD COLUMN self_registered INTEGER NOT NULL DEFAULT 0 CHECK (self_registered IN (0, 1));
UPDATE agents SET self_registered = 1
    WHERE id LIKE 'v5-%' AND (description = 'registered itself over TCP' OR description LIKE 'registered itself over TCP: %');

-- +goose Down
ALTER TABLE agents DROP COLUMN self_registered;

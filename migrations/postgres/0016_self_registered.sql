-- Agents that registered themselves without proof of who they are have a mark. Before, their id and the
-- beginning of their description had this meaning.

-- +goose Up
ALTER TABLE agents ADD COLUMN self_registered BOOLEAN NOT NULL DEFAULT FALSE;
UPDATE agents SET self_registered = TRUE
    WHERE id LIKE 'v5-%' AND (description = 'registered itself over TCP' OR description LIKE 'registered itself over TCP: %');

-- +goose Down
ALTER TABLE agents DROP COLUMN self_registered;

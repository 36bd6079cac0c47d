-- Agents that registered themselves without proof of their identity have a mark. Before, the prefixes of
-- their id and description identified them.

-- +goose Up
ALTER TABLE agents ADD COLUMN self_registered BOOLEAN NOT NULL DEFAULT FALSE;
UPDATE agents SET self_registered = TRUE
    WHERE id LIKE 'v5-%' AND (description = 'registered itself over TCP' OR description LIKE 'registered itself over TCP: %');

-- +goose Down
ALTER TABLE agents DROP COLUMN self_registered;

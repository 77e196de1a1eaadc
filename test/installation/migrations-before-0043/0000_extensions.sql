-- Trigram index for the search by name.
CREATE EXTENSION IF NOT EXISTS pg_trgm;

"""One PostgreSQL server on which holdfast's locks are row locks, like those of SELECT … FOR UPDATE."""
from lab.places.postgres import Postgres


class PostgresRows(Postgres):
    name = "postgres-rows"
    title = "PostgreSQL with row locks"

    def url(self, ports):
        return super().url(ports) + "?scheme=for-update"

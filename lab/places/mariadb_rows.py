"""One MariaDB server on which holdfast's locks are row locks, like those of SELECT … FOR UPDATE."""
from lab.places.mariadb import MariaDB


class MariaDBRows(MariaDB):
    name = "mariadb-rows"
    title = "MariaDB with row locks"

    def url(self, ports):
        return super().url(ports) + "?scheme=for-update"

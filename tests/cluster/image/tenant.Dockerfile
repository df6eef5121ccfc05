# An image of a tenant's own: whatever a driver is asked for, it does as its owner likes.
ARG OPERATOR
FROM ${OPERATOR}
ENTRYPOINT ["python", "-c", "import time; time.sleep(86400)"]

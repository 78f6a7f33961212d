/* fake_server.h: a server that plays a script, for dialogues that a real server can't be made to
 * have.
 *
 * The script is text, one step a line; \r \n \0 \\ and \xHH may be used in its bytes:
 *   EXPECT bytes        read until these bytes came, wherever they are; what came before them is
 *                       forgotten
 *   SEND bytes          write them. The word @INFO is the refusal of an INFO, if the last EXPECT
 *                       met one, or else nothing
 *   TRICKLE ms bytes    write them one by one, `ms` apart, until the client hangs up
 *   HANG                read and say nothing until the client hangs up
 *   CLOSE               hang up
 *   ACCEPT              take the next connection (the first is taken at the start)
 *   MEET n              wait until so many servers of this process have come to a MEET
 * The word @PORT stands for the server's port. At the end of the script the server behaves as after
 * HANG. */
#ifndef TESTS_FAKE_SERVER_H
#define TESTS_FAKE_SERVER_H

typedef struct fake_server fake_server;

/* Listens on a free port below 32768 of 127.0.0.1 and runs the script on a thread. `script` is
 * copied. */
fake_server *fake_server_start(const char *script);
int fake_server_port(const fake_server *server);
/* Waits for the end of the script (the client must have hung up) and frees the server. True when
 * every EXPECT was met. */
int fake_server_stop(fake_server *server);

#endif

//! The command, tested from outside: flags and help, messages, files of data and of models, progress, the doctor.

mod beside_writers;
mod broken_requests;
mod checkpoint_folders;
mod checkpoints;
mod cli;
mod csv;
mod doctor;
mod first_hour;
mod foreign_files;
mod foreign_server_files;
mod forgetting;
mod formats;
mod image_damage;
mod logs;
mod messages;
mod restoring;
mod row_types;
mod saving;
mod status;
mod two_trainings;
mod understanding;
mod validation;
mod warm_checkpoint;

#[path = "../harness/mod.rs"]
mod harness;
